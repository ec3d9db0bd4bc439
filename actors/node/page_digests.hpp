// Digests of pieces of a region, host memory or a GPU's: what two nodes compare when a transfer is
// to be verified.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "actors/device/region_table.hpp"
#include "actors/wire/message.hpp"

namespace penstock {

struct PageRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// XXH3 (64 bit) of each range. kOutOfRange when one does not lie inside the region, kStaleRegion
/// when its memory was lost. Blocks.
Result<std::vector<std::uint64_t>> digest_ranges(const Region& region,
                                                 std::span<const PageRange> ranges);

/// Of a Verify: the place of the first page that differs.
Result<Verified> compare_pages(const Region& region, const Verify& question);
/// The pages of a Verify.
InlineBytes pages_of(std::span<const PageRange> ranges, std::span<const std::uint64_t> digests);

}  // namespace penstock
