// Packing: line rate that does not depend on the page size. Small pages are gathered into a slot of
// the sender's staging memory, cross as one write to a slot of the receiver's, and are scattered
// there; a credit tells the sender that the slot is free again. See docs/architecture.md.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

/// One slot of the receiver's staging memory, lent to a transfer.
struct StagingSlot {
  std::uint32_t immediate = 0;  // what a write to it carries; names the slot for this transfer only
  std::uint64_t offset = 0;     // in the staging memory
};

/// What the receiver lent, and what is to be packed.
struct Packing {
  std::uint64_t below = 0;  // chunks shorter than this are packed, longer ones written directly
  std::uint64_t slot_bytes = 0;
  std::vector<StagingSlot> slots;
  /// Nothing may go directly: the region of one side is where no card reaches. No chunk is longer
  /// than a slot takes then.
  bool only = false;
};

}  // namespace penstock
