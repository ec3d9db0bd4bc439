#include "actors/peer/rails.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace penstock {
namespace {

using testing::UnorderedElementsAre;

bool always(Rail) { return true; }

TEST(Rails, EqualCountsPairOneToOne) {
  EXPECT_THAT(pair_rails(3, 3, always), UnorderedElementsAre(Rail{0, 0}, Rail{1, 1}, Rail{2, 2}));
}

TEST(Rails, UnequalCountsShareInTurn) {
  EXPECT_THAT(pair_rails(4, 2, always),
              UnorderedElementsAre(Rail{0, 0}, Rail{1, 1}, Rail{2, 0}, Rail{3, 1}));
  EXPECT_THAT(pair_rails(1, 3, always), UnorderedElementsAre(Rail{0, 0}, Rail{0, 1}, Rail{0, 2}));
}

TEST(Rails, PartnersAreThePairsOfAWholeMachine) {
  for (std::size_t ours = 1; ours <= 6; ++ours)
    for (std::size_t theirs = 1; theirs <= 6; ++theirs) {
      std::set<Rail> partners;
      for (std::size_t i = 0; i < ours; ++i)
        for (std::size_t j = 0; j < theirs; ++j)
          if (are_partners(ours, theirs, {i, j})) partners.insert({i, j});
      const auto rails = pair_rails(ours, theirs, always);
      EXPECT_EQ(partners, std::set<Rail>(rails.begin(), rails.end())) << ours << "x" << theirs;
    }
}

TEST(Rails, NothingThatDoesNotWorkIsChosenAndNoCardThatCouldWorkIsLeftOut) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t ours = 1 + random() % 5;
    const std::size_t theirs = 1 + random() % 5;
    std::set<Rail> good;
    for (std::size_t i = 0; i < ours; ++i)
      for (std::size_t j = 0; j < theirs; ++j)
        if (random() % 3 != 0) good.insert({i, j});
    const auto rails = pair_rails(ours, theirs, [&](Rail rail) { return good.contains(rail); });
    std::set<std::size_t> from;
    std::set<std::size_t> to;
    for (const Rail& rail : rails) {
      EXPECT_TRUE(good.contains(rail));
      from.insert(rail.first);
      to.insert(rail.second);
    }
    EXPECT_EQ(std::set<Rail>(rails.begin(), rails.end()).size(), rails.size());
    for (const Rail& rail : good) {
      EXPECT_TRUE(from.contains(rail.first));
      EXPECT_TRUE(to.contains(rail.second));
    }
  }
}

}  // namespace
}  // namespace penstock
