// What a node remembers for those who watch it.
#include "actors/monitor/monitor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

const TimePoint kStart{1h};
const std::chrono::system_clock::time_point kWall{1'000'000s};

TransferResult ended(std::uint64_t id, std::chrono::microseconds took,
                     TransferResult::State state = TransferResult::State::kDone) {
  TransferResult result;
  result.id = id;
  result.node = "b";
  result.lane = "bulk";
  result.direction = "write";
  result.path = "direct";
  result.bytes = 4096;
  result.state = state;
  result.cards = {{"eth0", {4096, 1, kStart + took / 2}}};
  result.stages.enter(Stage::kQueue, kStart);
  result.stages.enter(Stage::kWire, kStart + took / 4);
  result.stages.finish(kStart + took);
  return result;
}

void end(Monitor& monitor, TransferResult result) { monitor.transfer_ended(result, kWall); }

std::uint64_t count(const json& counts, const std::string& state) {
  for (const auto& each : counts.at("ended"))
    if (each.at("state") == state && each.at("priority") == "bulk") return each.at("count");
  return 99;
}

TEST(Monitor, CountsEndsByStateAndPriorityFromZero) {
  Monitor monitor(10);
  EXPECT_EQ(count(monitor.counts(), "failed"), 0u);
  end(monitor, ended(1, 100us));
  end(monitor, ended(2, 100us, TransferResult::State::kFailed));
  EXPECT_EQ(count(monitor.counts(), "done"), 1u);
  EXPECT_EQ(count(monitor.counts(), "failed"), 1u);
  EXPECT_EQ(monitor.counts().at("paths").at(0).at("bytes"), 8192);
}

TEST(Monitor, CountsOnlyTheStagesThatATransferPassed) {
  Monitor monitor(10);
  end(monitor, ended(1, 400us));
  const auto counts = monitor.counts();
  for (const auto& stage : counts.at("stages")) {
    const bool passed = stage.at("stage") == "queue" || stage.at("stage") == "wire";
    EXPECT_EQ(stage.at("count"), passed ? 1 : 0) << stage.at("stage");
    if (stage.at("stage") == "wire") {
      EXPECT_DOUBLE_EQ(stage.at("sum_s"), 300e-6);
    }
  }
}

TEST(Monitor, TellsWhereTheTimeOfATransferWent) {
  Monitor monitor(10);
  end(monitor, ended(7, 400us));
  const json trace = monitor.trace(7);
  EXPECT_EQ(trace.at("transfer"), 7);
  EXPECT_EQ(trace.at("total_ns"), 400'000);
  ASSERT_EQ(trace.at("stages").size(), 2u);
  EXPECT_EQ(trace.at("stages").at(1),
            (json{{"stage", "wire"}, {"at_ns", 100'000}, {"ns", 300'000}}));
  EXPECT_EQ(trace.at("cards").at(0).at("last_ns"), 200'000);
  EXPECT_EQ(trace.at("started_unix_us"), 1'000'000'000'000 - 400);
}

TEST(Monitor, KeepsTheLastTracesOnly) {
  Monitor monitor(2);
  for (std::uint64_t id = 1; id <= 3; ++id) end(monitor, ended(id, 100us));
  EXPECT_TRUE(monitor.trace(1).is_null());
  EXPECT_FALSE(monitor.trace(2).is_null());
  EXPECT_FALSE(monitor.trace(3).is_null());
  Monitor none(0);
  end(none, ended(1, 100us));
  EXPECT_TRUE(none.trace(1).is_null());
}

TEST(Monitor, RemembersTroubleNewestFirstAndBounded) {
  Monitor monitor(1);
  for (int i = 0; i < 1000; ++i) monitor.trouble("member", std::to_string(i), kWall);
  EXPECT_EQ(monitor.troubles().at(0).at("words"), "999");
  EXPECT_LE(monitor.troubles().size(), 100u);
  end(monitor, ended(4, 1us, TransferResult::State::kExpired));
  EXPECT_THAT(monitor.troubles().at(0).at("words").get<std::string>(),
              testing::HasSubstr("4 to b"));
}

}  // namespace
}  // namespace penstock
