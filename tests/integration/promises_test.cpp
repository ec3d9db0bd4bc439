// One test per promise of docs/architecture.md, on real services over tcp loopback.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tests/integration/nodes.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using State = client::TransferResult::State;
using Remote = client::TransferResult::Remote;

constexpr std::uint64_t kPage = 64 << 10;
constexpr std::uint64_t kBytes = 256 << 20;

void fill_both(Nodes& nodes) {
  nodes["a"].fill("src", 1);
  nodes["b"].fill("dst", 2);
}

struct Promises : testing::Test {
  /// Regions "src" on a and "dst" on b.
  void prepare(Nodes& nodes) {
    regions.push_back(nodes["a"].allocate("src", kBytes));
    regions.push_back(nodes["b"].allocate("dst", kBytes));
    for (auto& region : regions) region.detach();
    fill_both(nodes);
  }
  std::vector<client::Region> regions;
  Shuffle shuffle{kBytes, kPage, 7};
};

TEST_F(Promises, WritesAndReadsLandWhereTheyShouldBothWaysAtOnce) {
  Nodes nodes({"a", "b"});
  prepare(nodes);
  auto other = nodes["b"].allocate("src2", kBytes);
  auto back = nodes["a"].allocate("dst2", kBytes);
  nodes["b"].fill("src2", 3);
  auto there = nodes["a"].transfer(shuffle.write("src", "b", "dst"));
  auto here = nodes["a"].transfer(shuffle.read("dst2", "b", "src2"));
  EXPECT_EQ(there.wait().state, State::kDone);
  EXPECT_EQ(here.wait().state, State::kDone);
  EXPECT_TRUE(shuffle.verify(nodes["a"], "src", nodes["b"], "dst"));
  EXPECT_TRUE(shuffle.verify(nodes["b"], "src2", nodes["a"], "dst2"));
}

TEST_F(Promises, AfterACancelNothingOfTheTransferLandsAnyMore) {
  Nodes nodes({"a", "b"});
  prepare(nodes);
  for (int round = 0; round < 10; ++round) {
    auto transfer = nodes["a"].transfer(shuffle.write("src", "b", "dst"));
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
    transfer.cancel();
    const auto result = transfer.wait();
    ASSERT_TRUE(result.state == State::kCancelled || result.state == State::kDone);
    ASSERT_EQ(result.remote, Remote::kQuiet);
    // Another use of the pages, and other work on the same connection meanwhile.
    nodes["b"].fill("dst", 100 + round);
    const auto before = nodes["b"].digest("dst", kPage);
    nodes["a"].fill("src", 200 + round);
    std::this_thread::sleep_for(50ms);
    ASSERT_EQ(before, nodes["b"].digest("dst", kPage)) << "round " << round;
  }
}

TEST_F(Promises, WhatIsReportedAsLandedHasLanded) {
  Nodes nodes({"a", "b"});
  prepare(nodes);
  auto transfer = nodes["a"].transfer(shuffle.write("src", "b", "dst"));
  std::this_thread::sleep_for(20ms);
  transfer.cancel();
  const auto result = transfer.wait();
  if (result.state == State::kDone) GTEST_SKIP() << "it was done before the cancel";
  std::vector<std::uint32_t> from, to;
  std::uint64_t bytes = 0;
  for (const auto& range : result.landed) {
    bytes += range.length;
    for (std::uint64_t at = 0; at < range.length; at += kPage) {
      from.push_back(static_cast<std::uint32_t>((range.source_offset + at) / kPage));
      to.push_back(static_cast<std::uint32_t>((range.destination_offset + at) / kPage));
    }
  }
  EXPECT_EQ(bytes, result.bytes);
  if (!from.empty()) {
    EXPECT_EQ(nodes["a"].digest("src", kPage, from), nodes["b"].digest("dst", kPage, to));
  }
}

TEST_F(Promises, AKilledReceiverEndsEveryTransferOnceAndAFreshOneWorksAtOnce) {
  Nodes nodes({"a", "b"});
  prepare(nodes);
  for (int round = 0; round < 3; ++round) {
    std::vector<client::Transfer> transfers;
    for (int i = 0; i < 20; ++i)
      transfers.push_back(nodes["a"].transfer(shuffle.write("src", "b", "dst")));
    std::this_thread::sleep_for(std::chrono::milliseconds(30 * round));
    const auto old = nodes.incarnation("b");
    nodes.kill("b");
    nodes.start("b");
    nodes["b"].allocate("dst", kBytes).detach();
    for (auto& transfer : transfers) {
      const auto result = transfer.wait();
      EXPECT_TRUE(result.state == State::kFailed || result.state == State::kDone);
    }
    nodes.await_connected("a", "b", old);
    EXPECT_EQ(nodes["a"].transfer(shuffle.write("src", "b", "dst")).wait().state, State::kDone);
    EXPECT_TRUE(shuffle.verify(nodes["a"], "src", nodes["b"], "dst"));
  }
}

TEST_F(Promises, AKilledInitiatorFreesTheRegionsItWasWritingTo) {
  Nodes nodes({"a", "b"}, {"timeouts.transfer_default_ms=2000", "timeouts.lease_extra_ms=500"});
  prepare(nodes);
  auto transfer = nodes["a"].transfer(shuffle.write("src", "b", "dst"));
  std::this_thread::sleep_for(10ms);
  nodes.kill("a");
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (true) {
    try {
      nodes["b"].release("dst");
      break;
    } catch (const client::Error& error) {
      ASSERT_EQ(error.code(), "BUSY");
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "the region is pinned for ever";
      std::this_thread::sleep_for(50ms);
    }
  }
}

TEST_F(Promises, AClientThatDiesLeavesTheServicesWorking) {
  Nodes nodes({"a", "b"});
  prepare(nodes);
  for (int i = 0; i < 20; ++i) {
    client::Client brief({.endpoint = nodes.endpoint("a")});
    brief.transfer(shuffle.write("src", "b", "dst"));
  }
  EXPECT_EQ(nodes["a"].transfer(shuffle.write("src", "b", "dst")).wait().state, State::kDone);
  EXPECT_TRUE(shuffle.verify(nodes["a"], "src", nodes["b"], "dst"));
}

TEST_F(Promises, OldEpochsAndIncarnationsAreRefusedByName) {
  Nodes nodes({"a", "b"});
  prepare(nodes);
  auto spec = shuffle.write("src", "b", "dst");
  spec.targets[0].epoch = 77;
  auto result = nodes["a"].transfer(spec).wait();
  EXPECT_EQ(result.state, State::kFailed);
  EXPECT_EQ(result.error_code, "STALE_REGION");

  nodes["b"].release("dst");
  auto again = nodes["b"].allocate("dst", kBytes);
  spec.targets[0].epoch = regions[1].epoch();
  EXPECT_EQ(nodes["a"].transfer(spec).wait().error_code, "STALE_REGION");
  spec.targets[0].epoch = again.epoch();
  EXPECT_EQ(nodes["a"].transfer(spec).wait().state, State::kDone);
}

TEST_F(Promises, AStoppedPeerDelaysNobodyElseAndItsTransfersEndInTime) {
  Nodes nodes({"a", "b", "c"});
  prepare(nodes);
  nodes["c"].allocate("dst", kBytes).detach();
  nodes.signal("c", SIGSTOP);
  auto spec = shuffle.write("src", "c", "dst");
  spec.deadline_ms = 1000;
  auto stuck = nodes["a"].transfer(spec);
  const auto started = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(nodes["a"].transfer(shuffle.write("src", "b", "dst")).wait().state, State::kDone);
  }
  EXPECT_TRUE(shuffle.verify(nodes["a"], "src", nodes["b"], "dst"));
  const auto result = stuck.wait();
  EXPECT_NE(result.state, State::kDone);
  // deadline + grace + fence, and room for a busy machine
  EXPECT_LT(std::chrono::steady_clock::now() - started, 15s);
  nodes.signal("c", SIGCONT);
  nodes.await_connected("a", "c");
  EXPECT_EQ(nodes["a"].transfer(shuffle.write("src", "c", "dst")).wait().state, State::kDone);
}

TEST_F(Promises, ANodeThatRestartsAtTheSameAddressIsBackAtOnceManyTimes) {
  Nodes nodes({"a", "b"});
  nodes["a"].allocate("src", 1 << 20).detach();
  Shuffle small(1 << 20, kPage, 3);
  for (int round = 0; round < 15; ++round) {
    const auto old = nodes.incarnation("b");
    nodes.kill("b");
    nodes.start("b");
    nodes["b"].allocate("dst", 1 << 20).detach();
    nodes.await_connected("a", "b", old);
    ASSERT_EQ(nodes["a"].transfer(small.write("src", "b", "dst")).wait().state, State::kDone);
  }
}

TEST_F(Promises, ReleaseWithForceEndsWhatUsesTheRegion) {
  Nodes nodes({"a", "b"});
  prepare(nodes);
  auto transfer = nodes["a"].transfer(shuffle.write("src", "b", "dst"));
  nodes["b"].release("dst", true);
  const auto result = transfer.wait();
  EXPECT_TRUE(result.state == State::kDone || result.error_code == "STALE_REGION" ||
              result.error_code == "NOT_FOUND")
      << result.error_code;
  auto local = nodes["a"].transfer(shuffle.read("src", "b", "dst"));
  EXPECT_EQ(local.wait().error_code, "NOT_FOUND");
}

TEST_F(Promises, TheLastByteIsVisibleWhenTheNotificationArrives) {
  Nodes nodes({"a", "b"});
  prepare(nodes);
  for (const std::uint32_t pages : {4u, 4096u}) {  // counted, and ended by FIN
    std::promise<std::string> heard;
    auto subscription = nodes["b"].subscribe(
        {"notify"}, [&](const client::Event& event) { heard.set_value(event.json); });
    Shuffle some(pages * kPage, kPage, pages);
    auto spec = some.write("src", "b", "dst");
    spec.notify = "layer 7";
    auto transfer = nodes["a"].transfer(spec);
    auto word = heard.get_future();
    ASSERT_EQ(word.wait_for(30s), std::future_status::ready);
    EXPECT_TRUE(some.verify(nodes["a"], "src", nodes["b"], "dst"));
    EXPECT_EQ(transfer.wait().state, State::kDone);
  }
}

TEST_F(Promises, SigtermDrainsWhatIsInFlightAndExitsWithZero) {
  Nodes nodes({"a", "b"});
  prepare(nodes);
  auto transfer = nodes["a"].transfer(shuffle.write("src", "b", "dst"));
  // Until the owner knows of it: a draining owner refuses new work.
  for (std::string state = "queued"; state == "queued" || state == "opening";)
    state = nodes["a"].transfers({transfer.id()}).at(0).state;
  nodes.signal("b", SIGTERM);
  nodes.signal("a", SIGTERM);
  EXPECT_EQ(transfer.wait().state, State::kDone);
  EXPECT_TRUE(nodes.process("a").wait(20s));
  EXPECT_TRUE(nodes.process("b").wait(20s));
  EXPECT_EQ(nodes.process("a").how_it_ended(), "exited with 0");
  EXPECT_EQ(nodes.process("b").how_it_ended(), "exited with 0");
}

}  // namespace
}  // namespace penstock::integration
