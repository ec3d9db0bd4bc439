// What clients ask for, and how each transfer's bytes are followed.
#include <algorithm>

#include "tests/sim/world/world_notes.hpp"

namespace penstock::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPages = 64;
constexpr std::byte kSourceJunk{0x5a};
constexpr std::byte kReleasedJunk{0xa5};

std::uint64_t pattern_of(std::size_t transfer, std::size_t piece) {
  std::uint64_t mixed = (transfer * 0x9e3779b97f4a7c15u) ^ (piece * 0xbf58476d1ce4e5b9u);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  return mixed ^ (mixed >> 27);
}

}  // namespace

void World::add_region(Life* life, const std::string& name) {
  auto store = std::make_shared<Store>(name, kPages);
  life->stores[name] = store;
  life->all_stores.push_back(store);
  life->member->node().add_region(name, store->bytes());
  // Of a transfer that its executor is still to hear of, this may be the local one.
  for (auto& [id, move] : moves_) {
    if (!move->pending || move->ended || move->initiator != life ||
        move->local.store->name() != name)
      continue;
    move->local = {store, life};
    for (const Piece& piece : move->pieces)
      store->reserve(move->write ? piece.source_page : piece.destination_page);
    attach(*move, move->local, move->write);
  }
  // Transfers that name no epoch may go to this one as well; not those that were open here and are
  // no more, whose pages others may have.
  for (auto& [id, move] : moves_) {
    const bool over =
        std::ranges::any_of(move->remotes, [](const Side& side) { return side.over; });
    if (!move->may_land || over || !move->any_epoch || move->remote_region != name) continue;
    move->remotes.push_back({store, life});
    for (const Piece& piece : move->pieces)
      store->reserve(move->write ? piece.destination_page : piece.source_page);
    attach(*move, move->remotes.back(), !move->write);
  }
}

/// What the transfer reads is there from now on, and what it writes may change.
void World::attach(Move& move, Side& side, bool source) {
  for (const Piece& piece : move.pieces)
    if (source)
      side.store->write(piece.source_page, piece.source);
    else
      side.store->open(piece.destination_page, piece.destination);
}

bool World::take_pieces(Move& move, Store& local, Store& remote, std::size_t pages) {
  Store& from = move.write ? local : remote;
  Store& to = move.write ? remote : local;
  const bool newest = chance(0.3);
  for (std::size_t i = 0; i < pages && from.free_pages() > 1 && to.free_pages() > 1; ++i) {
    Piece piece;
    piece.source_page = from.take(newest);
    piece.destination_page = to.take(newest);
    std::size_t length = Store::kPageBytes;
    if (chance(0.1)) {
      length = 1 + below(Store::kPageBytes);
      piece.source.at = below(Store::kPageBytes - length + 1);
      piece.destination.at = below(Store::kPageBytes - length + 1);
    }
    piece.source.length = piece.destination.length = length;
    piece.source.pattern = piece.destination.pattern = pattern_of(move.number, i);
    piece.source.transfer = piece.destination.transfer = move.number;
    move.pieces.push_back(piece);
  }
  return !move.pieces.empty();
}

void World::begin() {
  Course course;
  course.from = any_machine();
  course.to = chance(0.04) ? course.from : any_machine();
  // What those do who cannot reach one another, and what is left of it later, is worth seeing.
  const bool cut_off = !cuts_.empty() && chance(0.3);
  if (cut_off) {
    const auto between = std::next(cuts_.begin(), static_cast<long>(below(cuts_.size())))->first;
    course.from = between.first;
    course.to = between.second;
  }
  const std::size_t from = course.from;
  const std::size_t to = course.to;
  Life* other = machines_[to].life;
  course.life = machines_[from].life;
  if (course.life == nullptr || course.life->ended || course.life->paused || other == nullptr)
    return;
  const bool write = chance(0.65) || weather_.on_gpu[from] || weather_.on_gpu[to];
  const std::size_t which = below(2);
  TransferSpec& spec = course.spec;
  spec.direction = write ? Direction::kWrite : Direction::kRead;
  spec.region = machines_[from].name + std::to_string(which);
  TransferTarget target{machines_[to].name,
                        machines_[to].name + std::to_string(from == to ? 1 - which : below(2)), 0};
  for (const auto& region : other->member->node().regions().list())
    if (region->name == target.region) target.epoch = region->epoch;
  const bool stale = chance(weather_.stale_epoch);
  if (stale)
    target.epoch -= 1 + below(3);
  else if (chance(weather_.any_epoch))
    target.epoch = 0;
  spec.targets = {target};
  course.hurried = chance(cut_off ? 0.5 : weather_.hurry);
  spec.deadline_ms = static_cast<std::uint32_t>(course.hurried ? 1 + below(8) : 1500 + below(500));
  course.deadline = network_.now() + Milliseconds(spec.deadline_ms);
  spec.lane = chance(0.3) ? Lane::kUrgent : Lane::kBulk;
  course.small = chance(cut_off ? 0.6 : 0.2);
  spec.packing = course.small ? PackingMode::kAuto : static_cast<PackingMode>(below(3));
  const bool on_gpu = weather_.on_gpu[from] || weather_.on_gpu[to];
  if (on_gpu && write && from != to && chance(0.3)) spec.path = PathChoice::kStaged;
  spec.weight = static_cast<std::uint32_t>(1 + below(5));
  const bool cancelled = chance(weather_.cancel);
  course.undisturbed = !weather_.victim[from] && !weather_.victim[to] && !course.hurried &&
                       !cancelled && !stale &&
                       (from == to || course.life->member->connected(machines_[to].name));
  if (chance(weather_.stream)) return begin_stream(std::move(course), cancelled);
  if (chance(weather_.elsewhere)) {
    const std::size_t asker = any_machine();
    Life* asks = machines_[asker].life;
    if (asker != from && asks != nullptr && !asks->ended && !asks->paused) {
      course.asker = asks;
      course.undisturbed = course.undisturbed && !weather_.victim[asker] &&
                           asks->member->connected(machines_[from].name);
    }
  }
  Move* move = ask(course, nullptr);
  if (move != nullptr && cancelled) cancel_later(*move);
}

/// One transfer of this course, or a part of the stream; null: it was not asked for, or refused.
World::Move* World::ask(const Course& course, StreamRun* stream) {
  Life* other = machines_[course.to].life;
  auto owned = std::make_unique<Move>();
  Move& move = *owned;
  move.number = ++asked_;
  move.initiator = course.life;
  move.stream = stream;
  move.remote_node = machines_[course.to].name;
  move.remote_region = course.spec.targets.front().region;
  move.write = course.spec.direction == Direction::kWrite;
  move.notify = chance(0.3);
  move.deadline = course.deadline;
  const auto region_of = [&](Life* node, const std::string& name) -> Side {
    const auto found = node->stores.find(name);
    return {found == node->stores.end() ? nullptr : found->second, node};
  };
  move.local = region_of(course.life, course.spec.region);
  const Side remote = region_of(other, move.remote_region);
  if (!move.local.store || !remote.store) return nullptr;
  const bool empty = chance(0.02);
  if (!empty && !take_pieces(move, *move.local.store, *remote.store,
                             1 + below(course.small ? 2 : weather_.most_pages)))
    return nullptr;
  move.remotes.push_back(remote);
  attach(move, move.local, move.write);
  attach(move, move.remotes.back(), !move.write);

  const std::uint64_t epoch = course.spec.targets.front().epoch;
  std::uint64_t epoch_now = 0;
  for (const auto& region : other->member->node().regions().list())
    if (region->name == move.remote_region) epoch_now = region->epoch;
  move.any_epoch = epoch == 0;
  move.stale_epoch = epoch != 0 && epoch != epoch_now;
  move.undisturbed = course.undisturbed && !move.stale_epoch;
  std::vector<Range> ranges;
  for (const Piece& piece : move.pieces)
    ranges.push_back({piece.source_page * Store::kPageBytes + piece.source.at,
                      piece.destination_page * Store::kPageBytes + piece.destination.at,
                      piece.source.length});
  TransferSpec spec = course.spec;
  spec.layout = Ranges{BlobList<Range>::of(ranges)};
  if (move.notify) spec.notify = "word";
  const auto id =
      course.asker != nullptr ? course.asker->member->transfer_on(machines_[course.from].name, spec)
      : stream == nullptr
          ? course.life->member->transfer(spec)
          : course.life->member->append({stream->id, stream->appended, spec.layout, spec.notify});
  note("{} {} {} {} in {} pieces{}{}{}{}{}", move.number, spec.region,
       move.write ? "writes to" : "reads from", move.remote_region, ranges.size(),
       move.notify ? ", notify" : "", course.hurried ? ", hurried" : "",
       move.stale_epoch ? ", stale epoch"
       : move.any_epoch ? ", any epoch"
                        : "",
       stream != nullptr         ? fmt::format(", part {} of {:x}", stream->appended, stream->id)
       : course.asker != nullptr ? ", asks " + machines_[course.asker->machine].name
                                 : "",
       id ? fmt::format(", as {:x}", *id) : ": refused, " + id.error().message);
  if (!id) {
    if (move.undisturbed && (stream == nullptr || !stream->ended))
      broke("{} was refused: {}", move.number, id.error().message);
    for (Side* side : {&move.local, &move.remotes.front()}) {
      let_go(move, *side, "it was refused");
      give_back(move, *side);
    }
    return nullptr;
  }
  move.id = *id;
  if (stream != nullptr) {
    move.part = stream->appended++;
    ++stream->under_way;
    if (stream->cancelled) move.cancelled = stream->cancelled;
  }
  moves_.emplace(move.id, std::move(owned));
  if (course.asker != nullptr) begin_errand(course, move);
  return &move;
}

void World::cancel_later(Move& move) {
  if (move.pending)
    return network_.after(some(8ms), [this, &errand = errands_.at(move.id)] { cancel(errand); });
  network_.after(some(8ms), [this, &move] {
    if (move.initiator->ended) return;
    note("{} is cancelled", move.number);
    if (!move.cancelled) move.cancelled = network_.now();
    move.initiator->member->cancel(move.id);
  });
}

/// From now on its pages there belong to somebody else.
void World::let_go(Move& move, Side& side, const char* why) {
  if (std::exchange(side.let_go, true)) return;
  const bool source = (&side == &move.local) == move.write;
  for (const Piece& piece : move.pieces)
    if (source)
      side.store->overwrite(piece.source_page, kSourceJunk, move.number, why);
    else
      side.store->freeze(piece.destination_page, move.number, why);
}

void World::give_back(Move& move, Side& side) {
  if (std::exchange(side.given_back, true)) return;
  const bool source = (&side == &move.local) == move.write;
  for (const Piece& piece : move.pieces)
    side.store->give_back(source ? piece.source_page : piece.destination_page);
}

bool World::holds(const Move& move, const Side& side) const {
  return side.overwritten || std::ranges::all_of(move.pieces, [&](const Piece& piece) {
           return side.store->holds(piece.destination_page, piece.destination);
         });
}

// -- what nodes tell -----------------------------------------------------------------------------

void World::ended(Life* life, const TransferResult& result) {
  if (result.parts) return stream_ended(life, result);
  if (!result.on.empty()) return shadow_ended(life, result);
  const auto found = moves_.find(result.id);
  if (found == moves_.end()) return broke("{:x} ended and was never asked for", result.id);
  Move& move = *found->second;
  const bool quiet = result.remote == TransferResult::Remote::kQuiet;
  const bool done = result.state == TransferResult::State::kDone;
  note("{} ends: {}, {}{} {}", move.number, name_of(result.state), result.path,
       quiet ? "" : ", remote unreachable", result.error.message);
  if (move.ended) return broke("{} ended twice", move.number);
  move.ended = true;
  move.done = done;
  ++ended_;
  done_ += done;
  if (move.stream != nullptr) part_ended(move, result);
  check_memory("when a transfer ended");
  if (done && move.stale_epoch && !move.pieces.empty())
    broke("{} is done, but named an epoch that was", move.number);
  if (done && !quiet) broke("{} is done and not quiet", move.number);
  if (done && !(move.write ? std::ranges::any_of(
                                 move.remotes, [&](const Side& side) { return holds(move, side); })
                           : holds(move, move.local)))
    broke("{} is done, but its bytes are wrong", move.number);
  if (done && move.notify && !move.notified && move.remote_node != life->member->name())
    broke("{} is done, but its owner was not notified", move.number);
  if (!done && move.undisturbed)
    broke("{} has to succeed, nothing happened to its nodes: {}", move.number,
          result.error.message);
  if (!done) check_failed(move, result);
  TimePoint latest = move.deadline;
  if (move.cancelled) latest = std::min(latest, *move.cancelled);
  if (network_.now() > latest + kGraceMost + kFence + kEndSlack && !life->stood_still)
    broke("{} ended too late", move.number);

  let_go(move, move.local, "the terminal event");
  give_back(move, move.local);
  for (Side& side : move.remotes) {
    if (quiet) let_go(move, side, "the terminal event, remote quiet");
    if (side.let_go) give_back(move, side);
  }
  move.may_land = !quiet;
  if (!quiet) after_lease(move);
}

/// The owner has made its pages quiet by then, whatever it hears.
void World::after_lease(Move& move) {
  const TimePoint end = move.deadline + kGraceMost + kFence + kLeaseExtra + 200ms;
  network_.after(std::max(end - network_.now(), Clock::duration(1ms)), [this, &move] {
    move.may_land = false;
    for (Side& side : move.remotes) {
      let_go(move, side, "the end of its lease");
      give_back(move, side);
    }
  });
}

void World::initiator_ended(Life* life) {
  for (auto& [id, move] : moves_)
    if (move->initiator == life && !move->ended) after_lease(*move);
}

/// What it says that landed has.
void World::check_failed(const Move& move, const TransferResult& result) {
  if (result.remote != TransferResult::Remote::kQuiet) return;
  for (std::size_t i = 0; i + 2 < result.landed.size(); i += 3)
    for (const Piece& piece : move.pieces) {
      const std::uint64_t at = piece.destination_page * Store::kPageBytes + piece.destination.at;
      if (at < result.landed[i + 1] ||
          at + piece.destination.length > result.landed[i + 1] + result.landed[i + 2])
        continue;
      const auto landed = [&](const Side& side) {
        return side.overwritten || side.store->holds(piece.destination_page, piece.destination);
      };
      if (!(move.write ? std::ranges::any_of(move.remotes, landed) : landed(move.local)))
        broke("{} says that page {} landed", move.number, piece.destination_page);
    }
}

void World::notified(Life* life, const Notification& word) {
  const auto found = moves_.find(word.transfer);
  if (found == moves_.end()) return broke("{:x} notifies and was never asked for", word.transfer);
  Move& move = *found->second;
  note("{} hears of {}", machines_[life->machine].name, move.number);
  if (move.notified || !move.notify) broke("{} notified twice, or unasked", move.number);
  move.notified = true;
  bool right = !move.write;
  for (Side& side : move.remotes) {
    if (side.life != life) continue;
    right = right || side.let_go || holds(move, side);
    side.over = true;
    if (life->member->name() != move.initiator->member->name())
      let_go(move, side, "the owner was notified");
  }
  if (!right) broke("{} notified before its bytes were there", move.number);
  if (word.stream != (move.stream != nullptr ? move.stream->id : 0) || word.part != move.part)
    broke("{} notified as part {} of {:x}", move.number, word.part, word.stream);
}

void World::broken(Life* life, TransferId id) {
  const auto found = moves_.find(id);
  if (found == moves_.end()) return;  // a warm-up
  Move& move = *found->second;
  note("{} fenced {} by itself", machines_[life->machine].name, move.number);
  for (Side& side : move.remotes)
    if (side.life == life) {
      let_go(move, side, "its owner fenced it");
      side.over = true;
      if (move.ended) give_back(move, side);
    }
}

void World::released(Life* life, const std::string& region) {
  note("{} is released", region);
  const std::shared_ptr<Store> store = life->stores.at(region);
  for (auto& [id, move] : moves_) {
    if (move->local.store == store && move->pending && !move->ended) {
      let_go(*move, move->local, "its region was released");
      move->local.overwritten = true;
    } else if (move->local.store == store && !move->ended) {
      broke("{} is released, and {} has not ended", region, move->number);
    }
    for (Side& side : move->remotes)
      if (side.store == store) {
        let_go(*move, side, "its region was released");
        side.overwritten = true;
      }
  }
  for (std::size_t page = 0; page < store->pages(); ++page)
    store->overwrite(page, kReleasedJunk, 0, "the region was released");
  life->stores.erase(region);
  network_.after(chance(0.5) ? Clock::duration(0) : some(50ms), [this, life, region] {
    if (!life->ended) add_region(life, region);
  });
}

}  // namespace penstock::sim
