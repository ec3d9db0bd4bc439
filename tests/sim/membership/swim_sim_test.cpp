// Membership at scale, on a virtual clock; swim_sim runs the same for longer.
#include <gtest/gtest.h>

#include "tests/sim/membership/experiments.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

Cluster::Options cluster(std::size_t nodes, double loss, std::size_t slow = 0) {
  Cluster::Options options;
  options.nodes = nodes;
  options.loss = loss;
  options.slow_nodes = slow;
  return options;
}

TEST(MembershipAtScale, AThousandNodesKnowADeathAJoinAndALeaveWithinTenPeriods) {
  const Convergence c = measure_convergence(cluster(1000, 0), 3);
  EXPECT_TRUE(c.complete);
  EXPECT_LT(largest(c.death_told), 10);
  EXPECT_LT(largest(c.join_all), 10);
  EXPECT_LT(largest(c.leave_all), 10);
}

TEST(MembershipAtScale, WhatANodeSendsDoesNotDependOnHowManyThereAre) {
  const Peace small = measure_peace(cluster(100, 0), 60s);
  const Peace large = measure_peace(cluster(600, 0), 60s);
  EXPECT_NEAR(large.frames, small.frames, 0.1 * small.frames);
  EXPECT_NEAR(large.bytes, small.bytes, 0.1 * small.bytes);
}

TEST(MembershipAtScale, LossOfOneFrameInTwentyKillsNobody) {
  const Peace peace = measure_peace(cluster(300, 0.05), 120s);
  EXPECT_GT(peace.accusations, 0u) << "nobody was even suspected: is anything lost?";
  EXPECT_EQ(peace.false_deaths, 0u);
}

TEST(MembershipAtScale, SlowNodesKillNobody) {
  const Peace guarded = measure_peace(cluster(200, 0.01, 10), 60s);
  EXPECT_EQ(guarded.false_deaths, 0u);
}

TEST(MembershipAtScale, ASeedDecidesEverything) {
  const auto run = [](std::uint64_t seed) {
    Cluster::Options options = cluster(100, 0.1, 3);
    options.seed = seed;
    const Peace peace = measure_peace(options, 20s);
    return std::tuple(peace.events, peace.accusations, peace.bytes, peace.slow_deaths);
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
}

}  // namespace
}  // namespace penstock
