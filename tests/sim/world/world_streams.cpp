// Transfers that stay open: clients append parts now and then, close, cancel, or forget.
#include "tests/sim/world/world_notes.hpp"

namespace penstock::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostParts = 8;
constexpr auto kBetweenParts = 6ms;  // at most

}  // namespace

void World::begin_stream(Course course, bool cancelled) {
  const auto id = course.life->member->open_stream(course.spec);
  note("{} opens a stream to {}{}", machines_[course.from].name, course.spec.targets.front().region,
       id ? fmt::format(", as {:x}", *id) : ": refused, " + id.error().message);
  if (!id) {
    if (course.undisturbed) broke("the stream was refused: {}", id.error().message);
    return;
  }
  auto owned = std::make_unique<StreamRun>();
  StreamRun& stream = *owned;
  stream.course = std::move(course);
  stream.id = *id;
  stream.planned = below(kMostParts + 1);
  stream.left_open = chance(0.1);
  streams_.emplace(stream.id, std::move(owned));
  if (cancelled) network_.after(some(20ms), [this, &stream] { cancel(stream); });
  go_on(stream);
}

void World::cancel(StreamRun& stream) {
  if (stream.course.life->ended) return;
  note("stream {:x} is cancelled", stream.id);
  if (!stream.cancelled) stream.cancelled = network_.now();
  for (auto& [id, move] : moves_)
    if (move->stream == &stream && !move->ended && !move->cancelled)
      move->cancelled = stream.cancelled;
  stream.course.life->member->cancel(stream.id);
}

/// The next part, or the end.
void World::go_on(StreamRun& stream) {
  Life* life = stream.course.life;
  if (life->ended || stream.closed) return;
  if (life->paused) {  // its client waits
    network_.after(some(kBetweenParts), [this, &stream] { go_on(stream); });
    return;
  }
  SimMember& member = *life->member;
  if (stream.planned > 0) {
    --stream.planned;
    Move* part = ask(stream.course, &stream);
    if (part != nullptr && chance(0.1)) {  // the answer was lost: the client asks again
      const auto again = member.append({stream.id, part->part, Ranges{}});
      if (!again || *again != part->id) broke("{} was appended twice", part->number);
    }
    network_.after(some(kBetweenParts), [this, &stream] { go_on(stream); });
    return;
  }
  if (stream.left_open) return;
  const bool was_running = !stream.ended;
  const std::size_t under_way = stream.under_way;
  const auto closed = member.close_stream({stream.id, stream.appended});
  stream.closed = closed.has_value();
  note("stream {:x} is closed with {} parts, {} under way{}", stream.id, stream.appended, under_way,
       closed ? "" : ": refused, " + closed.error().message);
  if (!closed && was_running && stream.course.undisturbed && !stream.ended)
    broke("the close of {:x} was refused: {}", stream.id, closed.error().message);
  if (closed && was_running && under_way == 0 && !stream.ended)
    broke("{:x} is closed with nothing under way, and did not end", stream.id);
}

void World::part_ended(const Move& move, const TransferResult& result) {
  StreamRun& stream = *move.stream;
  if (stream.ended) broke("{} ended after its stream {:x}", move.number, stream.id);
  if (result.stream != stream.id || result.part != move.part)
    broke("{} ended as part {} of {:x}", move.number, result.part, result.stream);
  --stream.under_way;
  stream.done += result.state == TransferResult::State::kDone;
}

void World::stream_ended(Life* life, const TransferResult& result) {
  const auto found = streams_.find(result.id);
  if (found == streams_.end()) return broke("{:x} ended and was never opened", result.id);
  StreamRun& stream = *found->second;
  const bool done = result.state == TransferResult::State::kDone;
  note("stream {:x} ends: {}, {} of {} parts done {}", stream.id, name_of(result.state),
       result.parts->done, result.parts->appended, result.error.message);
  if (std::exchange(stream.ended, true)) return broke("stream {:x} ended twice", stream.id);
  if (stream.under_way != 0)
    broke("stream {:x} ended before {} of its parts", stream.id, stream.under_way);
  if (result.parts->appended != stream.appended || result.parts->done != stream.done)
    broke("stream {:x} had {} parts, {} done", stream.id, stream.appended, stream.done);
  if (done && stream.done != stream.appended)
    broke("stream {:x} is done and lacks parts", stream.id);
  if (done && result.remote != TransferResult::Remote::kQuiet)
    broke("stream {:x} is done and not quiet", stream.id);
  const bool stale = result.error.code == ErrorCode::kStaleRegion;
  if (!done && stream.course.undisturbed && !stream.left_open && !stale)
    broke("stream {:x} has to succeed, nothing happened to its nodes: {}", stream.id,
          result.error.message);
  TimePoint latest = stream.course.deadline;
  if (stream.cancelled) latest = std::min(latest, *stream.cancelled);
  if (network_.now() > latest + kGraceMost + kFence + 2 * kEndSlack && !life->stood_still)
    broke("stream {:x} ended too late", stream.id);
}

}  // namespace penstock::sim
