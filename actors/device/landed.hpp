// Which parts of an unfinished transfer had landed, from the poller's bitmap of chunks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/plan/plan.hpp"

namespace penstock {

struct Landed {
  /// (source offset, destination offset, length) triples; neighbours merged.
  std::vector<std::uint64_t> ranges;
  bool truncated = false;  // there were more than `most`
};

/// `bitmap` holds one bit per chunk by sequence; missing words count as not landed.
Landed landed_ranges(const Plan& plan, std::span<const std::uint64_t> bitmap, std::size_t most);

/// A bitmap with the first `chunks` bits set.
std::vector<std::uint64_t> landed_prefix(std::uint64_t chunks);

}  // namespace penstock
