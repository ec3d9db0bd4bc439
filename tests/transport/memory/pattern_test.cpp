#include "transport/memory/pattern.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace penstock {
namespace {

std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed, std::uint64_t position = 0) {
  std::vector<std::byte> memory(size);
  fill_pattern(memory, seed, position);
  return memory;
}

std::uint64_t word_at(const std::vector<std::byte>& memory, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, memory.data() + at, sizeof(word));
  return word;
}

TEST(Pattern, IsThePublishedSplitmix64Sequence) {
  // First values of splitmix64 for the state 1234567; its state advances by a constant of its own,
  // so that only the first word of a seed is in the published list.
  EXPECT_EQ(word_at(pattern(8, 1234567), 0), 6457827717110365317u);
  EXPECT_EQ(word_at(pattern(8, 1234567 + 0x9e3779b97f4a7c15u), 0), 3203168211198807973u);
}

TEST(Pattern, OfALaterWordIsThatOfALaterSeed) {
  EXPECT_EQ(word_at(pattern(64, 5), 24), word_at(pattern(8, 8), 0));
  EXPECT_EQ(word_at(pattern(8, 5, 1ull << 40), 0), word_at(pattern(8, 5 + (1ull << 37)), 0));
}

TEST(Pattern, FilledInPiecesEqualsFilledAtOnce) {
  const auto whole = pattern(200, 42);
  for (std::size_t begin = 0; begin <= 24; ++begin)
    for (std::size_t end = begin; end <= whole.size(); ++end) {
      const auto piece = pattern(end - begin, 42, begin);
      ASSERT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + begin))
          << begin << " to " << end;
    }
}

TEST(Pattern, WritesNothingOutsideItsSpan) {
  for (std::size_t begin = 0; begin < 9; ++begin)
    for (std::size_t size = 0; size < 20; ++size) {
      std::vector<std::byte> memory(40, std::byte{0xee});
      fill_pattern(std::span(memory).subspan(begin, size), 1, begin + 3);
      for (std::size_t i = 0; i < memory.size(); ++i) {
        const bool inside = i >= begin && i < begin + size;
        ASSERT_TRUE(inside || memory[i] == std::byte{0xee}) << i;
      }
    }
}

TEST(Digest, IsXxh3) {
  EXPECT_EQ(digest_page({}), 0x2d06800538d394c2u);  // XXH3_64bits of nothing, seed 0
}

TEST(Digest, DiffersBetweenPagesSeedsAndOneFlippedBit) {
  constexpr std::size_t kPageBytes = 4096;
  std::set<std::uint64_t> digests;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (std::uint64_t page = 0; page < 64; ++page)
      digests.insert(digest_page(pattern(kPageBytes, seed << 32, page * kPageBytes)));
  EXPECT_EQ(digests.size(), 4u * 64);
  auto page = pattern(kPageBytes, 0);
  page[4095] ^= std::byte{1};
  EXPECT_FALSE(digests.contains(digest_page(page)));
}

}  // namespace
}  // namespace penstock
