#include "actors/device/landed.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::shared_ptr<const Plan> apart(std::size_t count) {
  std::vector<Range> ranges;
  for (std::uint64_t i = 0; i < count; ++i) ranges.push_back({i * 100, 5000 + i * 200, 10});
  return *Plan::make(Ranges{BlobList<Range>::of(ranges)}, {});
}

TEST(Landed, SaysWhichChunksLanded) {
  const auto plan = apart(70);
  std::vector<std::uint64_t> bitmap = {0b101, 1};
  EXPECT_THAT(landed_ranges(*plan, bitmap, 100).ranges,
              ElementsAre(0, 5000, 10, 200, 5400, 10, 6400, 17800, 10));
}

TEST(Landed, NeighboursOnBothSidesAreOneRange) {
  const auto plan = *Plan::make(Ranges{BlobList<Range>::of({{0, 1000, 300}})}, {100, true});
  ASSERT_EQ(plan->chunks(), 3u);
  EXPECT_THAT(landed_ranges(*plan, landed_prefix(2), 100).ranges, ElementsAre(0, 1000, 200));
  std::vector<std::uint64_t> gap = {0b101};
  EXPECT_THAT(landed_ranges(*plan, gap, 100).ranges, ElementsAre(0, 1000, 100, 200, 1200, 100));
}

TEST(Landed, MissingWordsDidNotLand) {
  const auto plan = apart(70);
  EXPECT_THAT(landed_ranges(*plan, {}, 100).ranges, IsEmpty());
  std::vector<std::uint64_t> one = {1};
  EXPECT_THAT(landed_ranges(*plan, one, 100).ranges, ElementsAre(0, 5000, 10));
}

TEST(Landed, MoreThanAskedForIsTruncatedAndSaysSo) {
  const auto plan = apart(5);
  const Landed all = landed_ranges(*plan, landed_prefix(5), 5);
  EXPECT_EQ(all.ranges.size(), 15u);
  EXPECT_FALSE(all.truncated);
  const Landed some = landed_ranges(*plan, landed_prefix(5), 4);
  EXPECT_EQ(some.ranges.size(), 12u);
  EXPECT_TRUE(some.truncated);
}

TEST(Landed, APrefixHasExactlySoManyBits) {
  EXPECT_THAT(landed_prefix(0), IsEmpty());
  EXPECT_THAT(landed_prefix(3), ElementsAre(7u));
  EXPECT_THAT(landed_prefix(64), ElementsAre(~std::uint64_t{0}));
  EXPECT_THAT(landed_prefix(65), ElementsAre(~std::uint64_t{0}, 1u));
}

}  // namespace
}  // namespace penstock
