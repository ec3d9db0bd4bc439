// Fills memory with a pattern and digests it page by page, so that a transfer can be verified
// without moving the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

/// Writes bytes that depend on (seed, absolute position) only: the 8-byte word at position p (bytes
/// from the region's start, p a multiple of 8) is splitmix64(seed + p / 8), little-endian. Any
/// sub-range of a region filled in pieces equals the region filled at once. `position` is the
/// position of memory[0]; it need not be a multiple of 8.
void fill_pattern(std::span<std::byte> memory, std::uint64_t seed, std::uint64_t position);

/// XXH3 (64 bit) of one page.
std::uint64_t digest_page(std::span<const std::byte> page);

}  // namespace penstock
