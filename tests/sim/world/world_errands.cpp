// Transfers that clients of one node have another one carry out.
#include "tests/sim/world/world_notes.hpp"

namespace penstock::sim {
namespace {

using namespace std::chrono_literals;

/// After its deadline.
constexpr auto kShadowMost = kDelegationLate + kGraceMost + kFence + kDelegationMargin + 100ms;
/// The last word of its asker may lie with an executor that stands still.
constexpr auto kNeverAfter = kShadowMost + 2000ms;

}  // namespace

/// A move of this course that its asker's node has accepted, under the shadow's id.
void World::begin_errand(const Course& course, Move& move) {
  move.pending = true;
  Errand& errand = errands_[move.id];
  errand.asker = course.asker;
  errand.shadow = move.id;
  errand.move = &move;
  errand.undisturbed = move.undisturbed;
  errand.deadline = course.deadline;
  network_.after(course.deadline - network_.now() + kNeverAfter,
                 [this, &errand] { never_runs(errand, "it never came"); });
}

void World::cancel(Errand& errand) {
  if (errand.asker->ended || errand.ended) return;
  note("{} is cancelled by its asker", errand.move->number);
  errand.asker->member->cancel(errand.shadow);
}

/// Its executor has the whole request, and runs or refuses it.
void World::carried_out(Life* life, TransferId shadow, const Result<TransferId>& as,
                        TimePoint deadline) {
  const auto found = errands_.find(shadow);
  if (found == errands_.end()) return broke("{:x} is carried out and was never asked for", shadow);
  Errand& errand = found->second;
  Move& move = *errand.move;
  note("{} is carried out by {}{}", move.number, machines_[life->machine].name,
       as ? fmt::format(" as {:x}", *as) : ": refused, " + as.error().message);
  if (std::exchange(errand.came, true)) return broke("{} came twice", move.number);
  if (errand.never) return broke("{} came when nothing of it could any more", move.number);
  if (errand.ended && errand.quiet) return broke("{} came after its quiet end", move.number);
  if (move.initiator != life) return broke("{} came to another run of its executor", move.number);
  if (!as) return never_runs(errand, "it was refused");
  auto node = moves_.extract(move.id);
  node.key() = move.id = *as;
  move.pending = false;
  move.deadline = deadline;
  moves_.insert(std::move(node));
  errand.carried = true;
}

/// Its pages are free.
void World::never_runs(Errand& errand, const char* why) {
  if (errand.carried || std::exchange(errand.never, true)) return;
  Move& move = *errand.move;
  move.ended = true;
  move.may_land = false;
  let_go(move, move.local, why);
  give_back(move, move.local);
  for (Side& side : move.remotes) {
    let_go(move, side, why);
    give_back(move, side);
  }
}

void World::shadow_ended(Life* life, const TransferResult& result) {
  const auto found = errands_.find(result.id);
  if (found == errands_.end()) return broke("{:x} ended and was never asked for", result.id);
  Errand& errand = found->second;
  const Move& move = *errand.move;
  const bool done = result.state == TransferResult::State::kDone;
  errand.quiet = result.remote == TransferResult::Remote::kQuiet;
  note("{} ends for its asker: {}{} {}", move.number, name_of(result.state),
       errand.quiet ? "" : ", remote unreachable", result.error.message);
  if (std::exchange(errand.ended, true)) return broke("{} ended twice", move.number);
  if (errand.asker != life) broke("{} ended at another node than its asker's", move.number);
  if (errand.carried && errand.quiet && !move.ended)
    broke("{} is quiet for its asker, and its executor is at it", move.number);
  if (done && !(errand.carried && move.done)) broke("{} is done for its asker alone", move.number);
  // The pages of its asker's node are that client's again, whatever is said of the rest.
  for (Side& side : errand.move->remotes)
    if (side.life == life) let_go(*errand.move, side, "its asker was told of its end");
  if (!done && errand.undisturbed)
    broke("{} has to succeed, nothing happened to its nodes: {}", move.number,
          result.error.message);
  const auto own_pages = move.remote_node == life->member->name() ? 2200ms : 0ms;
  if (network_.now() > errand.deadline + kShadowMost + own_pages && !life->stood_still)
    broke("{} ended too late for its asker", move.number);
  if (errand.quiet) never_runs(errand, "its asker was told that it is quiet");
}

void World::check_errands() {
  for (const auto& [id, errand] : errands_)
    if (!errand.ended && !errand.asker->ended)
      broke("{} never ended for its asker", errand.move->number);
}

}  // namespace penstock::sim
