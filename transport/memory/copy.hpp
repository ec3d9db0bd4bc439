// A transfer between two regions of one node: copies the plan's chunks in slices.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/plan/plan.hpp"

namespace penstock {

struct CopyProgress {
  std::uint64_t bytes = 0;
  std::uint64_t chunks = 0;
};

/// Copies from the cursor's position until it is done, `slice_bytes` were copied, or `stop` is set.
/// The caller has checked that the plan lies inside both spans. Overlapping chunks are moved as by
/// memmove, one chunk at a time.
CopyProgress copy_slice(Cursor& cursor, std::span<const std::byte> source,
                        std::span<std::byte> destination, std::uint64_t slice_bytes,
                        const std::atomic<bool>& stop);

}  // namespace penstock
