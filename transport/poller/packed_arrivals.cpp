#include "transport/poller/packed_arrivals.hpp"

#include <algorithm>

namespace penstock {

PackedArrivals::Arrival PackedArrivals::begin(std::uint32_t immediate,
                                              const std::shared_ptr<Lent>& lent,
                                              std::uint64_t offset) {
  auto pages = pages_of(lent->staging->bytes().subspan(offset, lent->slot_bytes),
                        lent->region->bytes().size());
  if (!pages) {
    malformed_ = pages.error();
    return Arrival::kMalformed;
  }
  Move& move = moves_.emplace_back();
  move.lent = lent;
  move.immediate = immediate;
  move.offset = offset;
  move.pages = std::move(*pages);
  if (!start(move)) {
    tell(move);
    moves_.pop_back();
  }
  return Arrival::kTaken;
}

/// False: it cannot be started, now or later.
bool PackedArrivals::start(Move& move) {
  Lent& lent = *move.lent;
  const auto slot = lent.staging->bytes().subspan(move.offset, lent.slot_bytes);
  auto ticket = lent.mover->start(move.pages, lent.region->bytes(), slot, MoveDirection::kScatter);
  if (!ticket) {
    if (ticket.error().code == ErrorCode::kBusy) return true;
    failures_.push_back(ticket.error());
    return false;
  }
  move.ticket = *ticket;
  move.pages.clear();
  return true;
}

bool PackedArrivals::ended(Move& move) {
  if (move.ticket == SlotMover::kNothing) return !start(move);
  const auto done = move.lent->mover->poll(move.ticket);
  if (!done) {
    failures_.push_back(done.error());
    return true;
  }
  if (*done && move.armed) credit(move.lent, move.immediate);
  return *done;
}

std::size_t PackedArrivals::look() {
  std::size_t count = 0;
  for (std::size_t i = 0; i < moves_.size();) {
    if (!ended(moves_[i])) {
      ++i;
      continue;
    }
    Move move = std::move(moves_[i]);
    moves_.erase(moves_.begin() + static_cast<std::ptrdiff_t>(i));
    tell(move);
    ++count;
  }
  return count;
}

/// Tells those that waited for this move, unless they wait for another one, too.
void PackedArrivals::tell(const Move& move) {
  for (const std::uint64_t tag : move.tags)
    if (std::none_of(moves_.begin(), moves_.end(), [&](const Move& other) {
          return std::find(other.tags.begin(), other.tags.end(), tag) != other.tags.end();
        }))
      disarmed_.push_back(tag);
}

bool PackedArrivals::disarm(const std::vector<StagingSlot>& slots, std::uint64_t tag) {
  for (const StagingSlot& slot : slots) slots_.erase(slot.immediate);
  const auto meant = [&](const Move& move) {
    return std::any_of(slots.begin(), slots.end(),
                       [&](const StagingSlot& slot) { return slot.immediate == move.immediate; });
  };
  bool quiet = true;
  std::vector<Move> dropped;
  for (std::size_t i = 0; i < moves_.size();) {
    Move& move = moves_[i];
    if (meant(move) && move.ticket == SlotMover::kNothing) {  // and it never will be started
      dropped.push_back(std::move(move));
      moves_.erase(moves_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    if (meant(move)) {
      move.armed = false;
      if (tag != 0) move.tags.push_back(tag);
      quiet = false;
    }
    ++i;
  }
  for (const Move& move : dropped) tell(move);
  return quiet;
}

}  // namespace penstock
