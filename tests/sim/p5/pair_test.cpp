// A simulated p5.48xlarge pair: what of its 3200 Gbps arrives, and how the cards share it. On a
// virtual clock: no machine is too slow for these figures.
#include "tests/sim/p5/pair.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::sim {
namespace {

using namespace std::chrono_literals;

PairOptions one_device() {
  PairOptions options;
  options.devices = 1;
  return options;
}

/// Handshakes, first transfers, full windows.
void ramp_up(Pair& pair) {
  pair.keep_busy();
  pair.run_for(5ms);
}

TEST(P5Pair, ReachesLineRateAt64KiB) {
  Pair pair(PairOptions{});
  ramp_up(pair);
  const Arrivals arrivals = pair.measure(10ms);
  EXPECT_GE(arrivals.total_gbps(), 0.98 * 3200);
  EXPECT_LE(arrivals.total_gbps(), 3200.5);  // a counting error would show here
  EXPECT_LT(arrivals.spread(), 0.05);
  EXPECT_TRUE(pair.failures().empty());
}

TEST(P5Pair, TheCoreIsTheLimitWhenAWriteCostsMoreThanItsTimeOnTheLine) {
  PairOptions options = one_device();
  options.page_bytes = 4096;  // 82 ns of 400 Gbps
  options.write_cost = 500ns;
  Pair pair(options);
  ramp_up(pair);
  const Arrivals arrivals = pair.measure(4ms);
  const double expected = 4096 * 8 / 500.0;  // Gbps
  EXPECT_NEAR(arrivals.total_gbps(), expected, 0.05 * expected);
  EXPECT_GT(arrivals.busiest_core, 0.98);
}

TEST(P5Pair, EqualCardsShareEqually) {
  Pair pair(one_device());
  ramp_up(pair);
  EXPECT_LT(pair.measure(10ms).spread(), 0.05);
}

TEST(P5Pair, ACardAtHalfSpeedTakesHalfAndTheOthersStayFull) {
  Pair pair(one_device());
  pair.sender(0, 1).options().gbps = 50;
  ramp_up(pair);
  const Arrivals arrivals = pair.measure(10ms);
  EXPECT_NEAR(arrivals.gbps[0][1], 50, 1);
  for (const std::size_t card : {0, 2, 3}) EXPECT_GT(arrivals.gbps[0][card], 97) << card;
  EXPECT_GT(arrivals.total_gbps(), 0.97 * 350);
}

TEST(P5Pair, FourCardsFillTwo) {
  PairOptions options = one_device();
  options.remote_cards = 2;
  Pair pair(options);
  ramp_up(pair);
  const Arrivals arrivals = pair.measure(10ms);
  EXPECT_GT(arrivals.total_gbps(), 0.98 * 200);
  EXPECT_LT(arrivals.spread(), 0.05);
}

TEST(P5Pair, TwoCardsFeedFour) {
  PairOptions options = one_device();
  options.cards = 2;
  Pair pair(options);
  ramp_up(pair);
  const Arrivals arrivals = pair.measure(10ms);
  EXPECT_GT(arrivals.total_gbps(), 0.98 * 200);
  EXPECT_LT(arrivals.spread(), 0.05);
}

TEST(P5Pair, ASilentCardTakesNothingAndItsChunksMoveOn) {
  PairOptions options = one_device();
  options.poller.card_stall = 5ms;
  Pair pair(options);
  ramp_up(pair);
  pair.sender(0, 2).die(true);
  pair.run_for(250ms);  // questions that were lost with it are repeated after 100 ms
  EXPECT_GT(pair.measure(10ms).total_gbps(), 0.97 * 300);
  EXPECT_EQ(pair.sender(0, 2).out(), 0u);
  pair.stop_load();
  EXPECT_TRUE(pair.run_to_end(100ms));
  EXPECT_TRUE(pair.failures().empty()) << pair.failures().front();
}

TEST(P5Pair, EveryByteIsInItsPlaceAfterACardFailedOnTheWay) {
  PairOptions options = one_device();
  options.region_bytes = 16u << 20;
  options.card.move_bytes = true;
  options.card.gbps = 10;
  options.poller.card_stall = 5ms;
  for (const bool silent : {false, true}) {
    Pair pair(options);
    pair.fill(0);
    pair.run_for(1ms);
    const TransferId id = pair.transfer(0, 8u << 20);
    pair.run_for(1ms);
    pair.sender(0, 0).die(silent);
    ASSERT_TRUE(pair.run_to_end(500ms)) << silent;
    EXPECT_TRUE(pair.failures().empty()) << pair.failures().front();
    EXPECT_TRUE(pair.arrived(id)) << silent;
  }
}

TEST(P5Pair, AnUrgentPageWaitsForNoMoreThanAWindow) {
  const auto p99 = [](bool beside) {
    Pair pair(one_device());
    if (beside) pair.keep_busy();
    pair.run_for(5ms);
    pair.be_urgent(0, 100us, 100);
    pair.run_for(14ms);
    auto latencies = pair.urgent_latencies();
    EXPECT_EQ(latencies.size(), 100u);
    std::sort(latencies.begin(), latencies.end());
    return latencies.at(98);
  };
  const auto window = std::chrono::nanoseconds(
      static_cast<std::int64_t>(PollerOptions{}.link_window_bytes) * 8 / 100);
  EXPECT_LT(p99(true), 3 * p99(false) + window);
}

TEST(P5Pair, ASeedReplays) {
  const auto run = [](std::uint64_t seed) {
    PairOptions options = one_device();
    options.seed = seed;
    Pair pair(options);
    ramp_up(pair);
    pair.be_urgent(0, 100us, 10);
    const Arrivals arrivals = pair.measure(2ms);
    return std::tuple(arrivals.gbps, arrivals.writes, pair.urgent_latencies());
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

}  // namespace
}  // namespace penstock::sim
