#include "transport/packing/page_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace penstock {
namespace {

std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// Pages one behind the other in the region, with gaps of `gap` bytes in the slot.
std::vector<MovedPage> pages_of(std::size_t bytes, std::size_t count, std::size_t gap) {
  std::vector<MovedPage> pages;
  for (std::size_t i = 0; i < count; ++i) pages.push_back({i * bytes, i * (bytes + gap), bytes});
  return pages;
}

class PageCopy : public testing::TestWithParam<std::size_t> {
 protected:
  const std::size_t bytes = GetParam();
  const std::vector<MovedPage> pages = pages_of(bytes, 7, 3);
};

TEST_P(PageCopy, GatherMovesEveryByteAndNoOther) {
  const auto region = random_bytes(7 * bytes + 1, 1);  // memory even for pages of no bytes
  std::vector<std::byte> slot(7 * (bytes + 3), std::byte{0xee});
  gather_pages(pages, region.data(), slot.data());
  for (const MovedPage& page : pages) {
    const auto* from = region.data() + page.region_offset;
    const auto* to = slot.data() + page.slot_offset;
    EXPECT_TRUE(std::equal(from, from + bytes, to));
    EXPECT_TRUE(
        std::all_of(to + bytes, to + bytes + 3, [](auto b) { return b == std::byte{0xee}; }));
  }
}

TEST_P(PageCopy, ScatterMovesEveryByteAndNoOther) {
  const auto slot = random_bytes(7 * (bytes + 3), 2);
  // Wherever the page begins in a line of the cache.
  for (const std::size_t shift : {0u, 1u, 15u, 16u, 63u}) {
    std::vector<std::byte> region(7 * bytes + 128, std::byte{0xee});
    scatter_pages(pages, slot.data(), region.data() + shift);
    for (const MovedPage& page : pages) {
      const auto* from = slot.data() + page.slot_offset;
      EXPECT_TRUE(std::equal(from, from + bytes, region.data() + shift + page.region_offset));
    }
    EXPECT_TRUE(std::all_of(region.begin(), region.begin() + static_cast<std::ptrdiff_t>(shift),
                            [](auto b) { return b == std::byte{0xee}; }));
    EXPECT_TRUE(std::all_of(region.begin() + static_cast<std::ptrdiff_t>(shift + 7 * bytes),
                            region.end(), [](auto b) { return b == std::byte{0xee}; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, PageCopy,
                         testing::Values(0u, 1u, 63u, 64u, 511u, 512u, 513u, 575u, 1000u, 4096u,
                                         4097u, 65536u));

}  // namespace
}  // namespace penstock
