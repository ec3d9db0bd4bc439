#include "actors/device/slots.hpp"

#include <gtest/gtest.h>

#include <set>

namespace penstock {
namespace {

constexpr std::uint32_t kSlotMask = (1u << Slots::kSlotBits) - 1;

TEST(Slots, ASlotThatIsUsedAgainHasAnotherGeneration) {
  Slots slots(1);
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 4096; ++i) {
    const auto immediate = slots.take();
    ASSERT_TRUE(immediate);
    EXPECT_EQ(*immediate & kSlotMask, 0u);
    EXPECT_TRUE(seen.insert(*immediate).second) << "generation repeated after " << i;
    slots.give_back(*immediate);
  }
  EXPECT_FALSE(seen.insert(*slots.take()).second);
}

TEST(Slots, EverySlotIsGivenOutOnceAndThenNothing) {
  Slots slots;
  std::vector<bool> seen(1u << Slots::kSlotBits, false);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const auto immediate = slots.take();
    ASSERT_TRUE(immediate) << i;
    ASSERT_FALSE(seen[*immediate & kSlotMask]);
    seen[*immediate & kSlotMask] = true;
  }
  EXPECT_FALSE(slots.take());
  EXPECT_EQ(slots.taken(), seen.size());
  slots.give_back(77);
  const auto again = slots.take();
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, (1u << Slots::kSlotBits) | 77u);
}

TEST(Slots, TheSlotThatIsFreeLongestIsUsedFirst) {
  Slots slots(4);
  for (int i = 0; i < 4; ++i) slots.take();
  for (std::uint32_t slot : {2u, 0u, 3u}) slots.give_back(slot);
  EXPECT_EQ(*slots.take() & kSlotMask, 2u);
  EXPECT_EQ(*slots.take() & kSlotMask, 0u);
  EXPECT_EQ(*slots.take() & kSlotMask, 3u);
}

TEST(Slots, ASlotRestsWhileOthersWereNeverUsed) {
  Slots slots;
  for (std::uint32_t i = 0; i + 1 < Slots::kReuseAfter; ++i) {
    const auto immediate = slots.take();
    EXPECT_EQ(*immediate, i);
    slots.give_back(*immediate);
  }
}

}  // namespace
}  // namespace penstock
