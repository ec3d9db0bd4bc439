// What a layout covers, and the proof that no offset in it passes 2^64.
#pragma once

#include <cstdint>

#include "transport/error.hpp"
#include "transport/plan/layout.hpp"

namespace penstock {

struct Extent {
  std::uint64_t bytes = 0;
  /// One past the last byte touched; 0 when nothing is.
  std::uint64_t source_end = 0;
  std::uint64_t destination_end = 0;
};

/// Errors (kInvalidArgument): lists of different length, pages without rows or of 0 bytes, an
/// offset or a sum that passes 2^64. Takes time per entry and per base pair, not per row.
Result<Extent> measure(const Layout& layout);

}  // namespace penstock
