// Moves pages between a region and a slot of staging memory where the processor cannot: in memory
// of a GPU. A move is started and ends later; whoever started it looks again. Host memory needs
// none of this: its pages are copied on the spot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/error.hpp"

namespace penstock {

/// One page and its place in the slot.
struct MovedPage {
  std::uint64_t region_offset = 0;  // from the region's start
  std::uint64_t slot_offset = 0;    // from the slot's
  std::uint64_t bytes = 0;
};

enum class MoveDirection : unsigned char {
  kGather,   // region to slot
  kScatter,  // slot to region
};

/// Of one poller: only its thread calls it. Moves may end in any order. Destroying it waits for
/// those that are under way.
class SlotMover {
 public:
  using Ticket = std::uint64_t;
  static constexpr Ticket kNothing = 0;  // never a move's

  virtual ~SlotMover() = default;

  /// Begins to copy `pages`, which lie inside `region` (bytes() of the memory) and inside `slot`;
  /// the list is read before return. Region and slot stay as they are until poll() told the end.
  /// kBusy: too many moves are under way, poll and ask again. Never blocks.
  virtual Result<Ticket> start(std::span<const MovedPage> pages, std::span<std::byte> region,
                               std::span<std::byte> slot, MoveDirection direction) = 0;

  /// True once the bytes are where they belong, visible to the processor, to cards and to kernels
  /// launched from now on. An error ends the move, too: nothing of it touches memory any more.
  /// Afterwards the ticket is forgotten.
  virtual Result<bool> poll(Ticket ticket) = 0;
};

}  // namespace penstock
