#include "actors/device/landed.hpp"

namespace penstock {

Landed landed_ranges(const Plan& plan, std::span<const std::uint64_t> bitmap, std::size_t most) {
  Landed landed;
  auto& ranges = landed.ranges;
  Cursor cursor(plan);
  Chunk chunk;
  while (cursor.next(chunk)) {
    const std::uint64_t word = chunk.sequence / 64;
    if (word >= bitmap.size()) break;
    if (!(bitmap[word] >> (chunk.sequence % 64) & 1)) continue;
    if (!ranges.empty()) {
      std::uint64_t* last = &ranges[ranges.size() - 3];
      if (last[0] + last[2] == chunk.source_offset &&
          last[1] + last[2] == chunk.destination_offset) {
        last[2] += chunk.length;
        continue;
      }
    }
    if (ranges.size() / 3 == most) {
      landed.truncated = true;
      break;
    }
    ranges.insert(ranges.end(), {chunk.source_offset, chunk.destination_offset, chunk.length});
  }
  return landed;
}

std::vector<std::uint64_t> landed_prefix(std::uint64_t chunks) {
  std::vector<std::uint64_t> bitmap(chunks / 64, ~std::uint64_t{0});
  if (chunks % 64 != 0) bitmap.push_back((std::uint64_t{1} << (chunks % 64)) - 1);
  return bitmap;
}

}  // namespace penstock
