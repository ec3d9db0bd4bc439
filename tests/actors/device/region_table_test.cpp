#include "actors/device/region_table.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace penstock {
namespace {

std::shared_ptr<Region> region(const std::string& name, std::uint64_t bytes = 4096) {
  auto made = std::make_shared<Region>();
  made->name = name;
  made->bytes = bytes;
  return made;
}

TEST(RegionTable, AReservedNameIsTakenButCannotBeUsed) {
  RegionTable table;
  ASSERT_TRUE(table.reserve("r", 10));
  EXPECT_EQ(table.reserve("r", 10).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(table.use("r").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(table.close("r", true).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(table.list().empty());
  EXPECT_FALSE(table.remove("r"));
  table.abandon("r");
  EXPECT_TRUE(table.reserve("r", 10));
}

TEST(RegionTable, AbandonLeavesAPublishedRegionAlone) {
  RegionTable table;
  table.publish(region("r"));
  table.abandon("r");
  EXPECT_TRUE(table.use("r"));
}

TEST(RegionTable, AFullTableRefusesByName) {
  RegionTable table;
  ASSERT_TRUE(table.reserve("a", 1));
  EXPECT_EQ(table.reserve("b", 1).error().code, ErrorCode::kResourceExhausted);
}

TEST(RegionTable, ANameThatIsUsedAgainHasAnotherEpoch) {
  RegionTable table;
  const auto old = table.publish(region("r"))->epoch;
  ASSERT_TRUE(table.close("r", false));
  ASSERT_TRUE(table.remove("r"));
  const auto fresh = table.publish(region("r"))->epoch;
  EXPECT_NE(old, fresh);
  EXPECT_EQ(table.use("r", old).error().code, ErrorCode::kStaleRegion);
  EXPECT_TRUE(table.use("r", fresh));
  EXPECT_TRUE(table.use("r", 0));
}

TEST(RegionTable, EpochsOfAnotherRunDoNotRepeat) {
  RegionTable before(1000);
  RegionTable after(2000);
  EXPECT_NE(before.publish(region("r"))->epoch, after.publish(region("r"))->epoch);
}

TEST(RegionTable, ARegionInUseIsBusyUnlessForced) {
  RegionTable table;
  table.publish(region("r"));
  auto use = table.use("r");
  ASSERT_TRUE(use);
  EXPECT_EQ(table.close("r", false).error().code, ErrorCode::kBusy);
  EXPECT_TRUE(table.use("r")) << "a refused close changes nothing";
  ASSERT_TRUE(table.close("r", true));
  EXPECT_EQ(table.use("r").error().code, ErrorCode::kStaleRegion);
  EXPECT_EQ(table.close("r", true).error().code, ErrorCode::kBusy);
  EXPECT_FALSE(table.remove("r")) << "still in use";
  use->reset();
  EXPECT_TRUE(table.remove("r"));
  EXPECT_EQ(table.use("r").error().code, ErrorCode::kNotFound);
}

TEST(RegionTable, AnOpenRegionIsNotRemoved) {
  RegionTable table;
  table.publish(region("r"));
  EXPECT_FALSE(table.remove("r"));
}

TEST(RegionUse, EveryUseIsCountedOnceAndGivenBack) {
  RegionTable table;
  const auto r = table.publish(region("r"));
  {
    RegionUse first = std::move(*table.use("r"));
    RegionUse second = std::move(first);
    EXPECT_EQ(r->uses, 1u);
    second = std::move(*table.use("r"));
    EXPECT_EQ(r->uses, 1u);
    second.reset();
    second.reset();
    EXPECT_EQ(r->uses, 0u);
    RegionUse none;
    EXPECT_FALSE(none);
  }
  EXPECT_EQ(r->uses, 0u);
}

TEST(RegionTable, NobodyHoldsARegionThatWasRemoved) {
  RegionTable table;
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (int i = 0; i < 3; ++i)
    users.emplace_back([&] {
      while (!stop)
        if (auto use = table.use("r")) {
          EXPECT_GT((*use)->uses.load(), 0u);
        }
    });
  users.emplace_back([&] {
    while (!stop)
      for (const auto& each : table.list()) EXPECT_EQ(each->name, "r");
  });
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(table.reserve("r", 1));
    const auto published = table.publish(region("r"));
    std::this_thread::yield();
    while (!table.close("r", i % 2 == 0)) std::this_thread::yield();
    while (!table.remove("r")) std::this_thread::yield();
    EXPECT_EQ(published->uses.load(), 0u);
  }
  stop = true;
  for (auto& user : users) user.join();
}

}  // namespace
}  // namespace penstock
