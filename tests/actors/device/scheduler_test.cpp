#include "actors/device/scheduler.hpp"

#include <gtest/gtest.h>

#include <map>

namespace penstock {
namespace {

constexpr std::uint64_t kQuantum = 1000;

Scheduler scheduler() { return Scheduler({kQuantum, 2}); }

/// Plays the poller: posts grants in turn, a transfer's together, and asks for more.
struct Served {
  Scheduler& scheduler;
  std::vector<Grant> out;
  std::map<TransferId, std::uint64_t> bytes;

  void rounds(int count) {
    bytes.clear();
    for (int i = 0; i < count; ++i) {
      for (const Grant& grant : scheduler.grants()) out.push_back(grant);
      if (out.empty()) return;
      const TransferId first = out.front().transfer;
      std::erase_if(out, [&](const Grant& grant) {
        if (grant.transfer == first) bytes[first] += grant.bytes;
        return grant.transfer == first;
      });
      scheduler.quantum_done(first);
    }
  }
};

TEST(Scheduler, GrantsAreQuantaAheadPerPeerAndLane) {
  Scheduler s = scheduler();
  s.add(1, 7, Lane::kBulk, 1, 100 * kQuantum);
  s.add(2, 7, Lane::kBulk, 1, 100 * kQuantum);
  s.add(3, 8, Lane::kBulk, 1, 100 * kQuantum);
  s.add(4, 7, Lane::kUrgent, 1, 100 * kQuantum);
  EXPECT_EQ(s.grants().size(), 6u);
  EXPECT_TRUE(s.grants().empty());
}

TEST(Scheduler, TheLastGrantIsTheRest) {
  Scheduler s = scheduler();
  s.add(1, 7, Lane::kBulk, 1, kQuantum + 1);
  const auto grants = s.grants();
  ASSERT_EQ(grants.size(), 2u);
  EXPECT_EQ(grants[0].bytes, kQuantum);
  EXPECT_EQ(grants[1].bytes, 1u);
  s.quantum_done(1);
  EXPECT_TRUE(s.grants().empty());
}

TEST(Scheduler, ThePartsOfAStreamHaveOneShareTogether) {
  Scheduler s = scheduler();
  s.add(1, 7, Lane::kBulk, 1, 1000 * kQuantum);
  for (TransferId part = 11; part < 19; ++part) s.add(part, 7, Lane::kBulk, 1, 1000 * kQuantum, 10);
  Served served{s, {}, {}};
  served.rounds(100);
  EXPECT_NEAR(static_cast<double>(served.bytes[1]), 50.0 * kQuantum, 3.0 * kQuantum);
}

TEST(Scheduler, TheOldestPartOfAStreamGoesFirst) {
  Scheduler s = scheduler();
  s.add(12, 7, Lane::kBulk, 1, 2 * kQuantum, 10);
  s.add(11, 7, Lane::kBulk, 1, 2 * kQuantum, 10);
  std::vector<TransferId> order;
  for (auto grants = s.grants(); !grants.empty(); grants = s.grants())
    for (const Grant& grant : grants) {
      order.push_back(grant.transfer);
      s.quantum_done(grant.transfer);
    }
  EXPECT_EQ(order, (std::vector<TransferId>{11, 11, 12, 12}));
}

TEST(Scheduler, AStreamThatHadNothingToDoHasNoClaimToThatTime) {
  Scheduler s = scheduler();
  s.add(1, 7, Lane::kBulk, 1, 1000 * kQuantum);
  s.add(11, 7, Lane::kBulk, 1, 0, 10);  // holds the stream's place
  Served served{s, {}, {}};
  served.rounds(100);
  s.add(12, 7, Lane::kBulk, 1, 1000 * kQuantum, 10);
  served.rounds(40);
  EXPECT_NEAR(static_cast<double>(served.bytes[12]), 20.0 * kQuantum, 3.0 * kQuantum);
}

TEST(Scheduler, AStreamIsGoneWithItsLastPart) {
  Scheduler s = scheduler();
  s.add(11, 7, Lane::kBulk, 1, 4 * kQuantum, 10);
  s.add(12, 7, Lane::kBulk, 1, 4 * kQuantum, 10);
  EXPECT_EQ(s.grants().size(), 2u);
  s.remove(11);
  EXPECT_EQ(s.grants().size(), 2u) << "what the first had out is free";
  s.remove(12);
  EXPECT_EQ(s.size(), 0u);
  EXPECT_TRUE(s.grants().empty());
}

TEST(Scheduler, UrgentGrantsComeFirst) {
  Scheduler s = scheduler();
  s.add(1, 7, Lane::kBulk, 1, kQuantum);
  s.add(2, 9, Lane::kUrgent, 1, kQuantum);
  EXPECT_EQ(s.grants().front().transfer, 2u);
}

TEST(Scheduler, TransfersToOnePeerShareByWeight) {
  Scheduler s = scheduler();
  s.add(1, 7, Lane::kBulk, 1, 10000 * kQuantum);
  s.add(2, 7, Lane::kBulk, 3, 10000 * kQuantum);
  Served served{s, {}, {}};
  served.rounds(400);
  EXPECT_NEAR(static_cast<double>(served.bytes[2]) / static_cast<double>(served.bytes[1]), 3, 0.1);
}

TEST(Scheduler, ANewcomerHasNoClaimToTheTimeBefore) {
  Scheduler s = scheduler();
  s.add(1, 7, Lane::kBulk, 1, 10000 * kQuantum);
  Served served{s, {}, {}};
  served.rounds(500);
  s.add(2, 7, Lane::kBulk, 1, 10000 * kQuantum);
  served.rounds(100);
  EXPECT_NEAR(static_cast<double>(served.bytes[1]), static_cast<double>(served.bytes[2]),
              4 * kQuantum);
}

TEST(Scheduler, ARestartedOneHasNoClaimToTheTimeItWasAway) {
  Scheduler s = scheduler();
  s.add(1, 7, Lane::kBulk, 1, 10000 * kQuantum);
  s.add(2, 7, Lane::kBulk, 1, 10000 * kQuantum);
  Served served{s, {}, {}};
  served.rounds(10);
  s.restart(2, 0);
  served.rounds(500);
  s.restart(2, 10000 * kQuantum);
  served.rounds(100);
  EXPECT_NEAR(static_cast<double>(served.bytes[1]), static_cast<double>(served.bytes[2]),
              4 * kQuantum);
}

TEST(Scheduler, APeerThatStandsTiesUpOnlyItsOwnQuanta) {
  Scheduler s = scheduler();
  s.add(1, 7, Lane::kBulk, 1, 100 * kQuantum);
  s.add(2, 8, Lane::kBulk, 1, 100 * kQuantum);
  s.grants();
  for (int i = 0; i < 20; ++i) {
    s.quantum_done(2);
    const auto grants = s.grants();
    ASSERT_EQ(grants.size(), 2u);
    for (const Grant& grant : grants) EXPECT_EQ(grant.transfer, 2u);
  }
}

TEST(Scheduler, RemoveAndRestartGiveQuantaToTheOthers) {
  Scheduler s = scheduler();
  s.add(1, 7, Lane::kBulk, 1, 100 * kQuantum);
  EXPECT_EQ(s.grants().size(), 2u);
  s.add(2, 7, Lane::kBulk, 1, 100 * kQuantum);
  s.add(3, 7, Lane::kBulk, 1, 1);
  EXPECT_TRUE(s.grants().empty());
  s.restart(1, 0);
  const auto grants = s.grants();
  EXPECT_EQ(grants.size(), 3u) << "one of them of a single byte";
  for (const Grant& grant : grants) EXPECT_NE(grant.transfer, 1u);
  s.remove(2);
  s.remove(3);
  EXPECT_TRUE(s.grants().empty()) << "a transfer restarted with nothing left gets nothing";
  s.restart(1, 5);
  ASSERT_EQ(s.grants().size(), 1u);
  s.remove(1);
  EXPECT_EQ(s.size(), 0u);
}

TEST(Scheduler, WhatIsDoneTwiceOrUnknownChangesNothing) {
  Scheduler s = scheduler();
  s.quantum_done(5);
  s.restart(5, 5);
  s.remove(5);
  s.add(1, 7, Lane::kBulk, 1, 10 * kQuantum);
  s.add(1, 9, Lane::kUrgent, 1, 10 * kQuantum);  // known already
  s.grants();
  s.quantum_done(1);
  s.quantum_done(1);
  s.quantum_done(1);
  EXPECT_EQ(s.grants().size(), 2u);
}

TEST(Scheduler, TenThousandTransfersToOnePeerAllGetTheirBytes) {
  Scheduler s = scheduler();
  for (TransferId id = 1; id <= 10000; ++id) s.add(id, 7, Lane::kBulk, 1, 3 * kQuantum);
  Served served{s, {}, {}};
  served.rounds(30000);
  EXPECT_EQ(served.bytes.size(), 10000u);
  for (const auto& [id, bytes] : served.bytes) ASSERT_EQ(bytes, 3 * kQuantum) << id;
}

}  // namespace
}  // namespace penstock
