// Staged transfers: pages of a GPU that no card reaches cross by slots, and what copies them there
// and from there ends later.
#include <set>

#include "tests/transport/poller/packing_rig.hpp"

namespace penstock {
namespace {

using test::kSlotBytes;
using test::kTransfer;
using test::shuffled_plan;

struct Ends {
  bool sender;
  bool receiver;
};

class PollerStaging : public test::PackingRig {
 protected:
  void open_ends(Ends ends, std::uint64_t send_slots = 8, std::uint64_t lent_slots = 8,
                 std::size_t cards = 1) {
    sender_on_gpu = ends.sender;
    receiver_on_gpu = ends.receiver;
    open(cards, send_slots, lent_slots);
  }
  bool untouched() const {
    return std::ranges::all_of(receiver->bytes(), [](std::byte b) { return b == std::byte{}; });
  }
  /// Until something is being copied at this end.
  void run_until_moving(const sim::LateMover& mover) {
    for (int round = 0; round < 5000 && mover.running() == 0; ++round) run(1);
    ASSERT_GT(mover.running(), 0u);
  }
};

class PollerStagingEnds : public PollerStaging, public testing::WithParamInterface<Ends> {};

TEST_P(PollerStagingEnds, EveryPageArrivesAndNoneGoesDirectly) {
  open_ends(GetParam(), 8, 8, 2);
  start(shuffled_plan(1024, 256, 3), 0);
  run(20'000);
  ASSERT_NE(idle(), nullptr);
  EXPECT_TRUE(idle()->complete);
  EXPECT_EQ(idle()->packed_bytes, plan->bytes());
  EXPECT_TRUE(arrived());
}

TEST_P(PollerStagingEnds, OneSlotOnEachSideIsEnough) {
  open_ends(GetParam(), 1, 1);
  start(shuffled_plan(256, 256, 4), 0);
  run(50'000);
  ASSERT_NE(idle(), nullptr);
  EXPECT_TRUE(idle()->complete);
  EXPECT_TRUE(arrived());
}

TEST_P(PollerStagingEnds, AFailedWriteIsFencedAndGoesOnInSlotsAgain) {
  open_ends(GetParam());
  start(shuffled_plan(512, 256, 8), 0);
  sender->cards[0]->fail_next(1);  // one alone: a second might fail after the resume
  run(20'000);
  ASSERT_NE(idle(), nullptr);
  EXPECT_FALSE(idle()->complete);
  // The owner fences: the same slots under other immediates.
  receiver->loop->execute(DisarmPacked{slots, 4});
  run(500);
  ASSERT_NE(receiver->last<PackedDisarmed>(), nullptr);
  for (auto& slot : slots) slot.immediate += 500;
  receiver->loop->execute(ArmPacked{kTransfer, slots, kSlotBytes, receiver->staging->memory,
                                    receiver->region->memory, credit_links});
  sender->loop->execute(ResumeTransfer{kTransfer, paths, Packing{0, kSlotBytes, slots, true}});
  sender->loop->execute(Grant{kTransfer, plan->bytes()});
  run(20'000);
  EXPECT_TRUE(idle()->complete) << (idle()->error ? idle()->error->message : "no error");
  EXPECT_EQ(idle()->packed_bytes, plan->bytes());
  EXPECT_TRUE(arrived());
}

TEST_P(PollerStagingEnds, LosingTheLastSlotStopsTheTransfer) {
  open_ends(GetParam(), 4, 1, 2);
  start(shuffled_plan(64, 256, 9), 0);
  sender->cards[0]->fail_next(1);
  sender->cards[1]->fail_next(1);
  run(20'000);
  ASSERT_NE(idle(), nullptr) << "it waits for a slot that never comes";
  EXPECT_FALSE(idle()->complete);
}

INSTANTIATE_TEST_SUITE_P(Ends, PollerStagingEnds,
                         testing::Values(Ends{true, true}, Ends{true, false}, Ends{false, true}),
                         [](const auto& each) {
                           return std::string(each.param.sender ? "Gpu" : "Host") + "To" +
                                  (each.param.receiver ? "Gpu" : "Host");
                         });

TEST_F(PollerStaging, GathersTheNextSlotsWhileOthersAreOut) {
  open_ends({true, false}, 8, 8);
  start(shuffled_plan(1024, 256, 3), 0);
  std::size_t most = 0;
  for (int round = 0; round < 2000; ++round) {
    run(1);
    most = std::max(most, sender->mover->running());
  }
  EXPECT_GE(most, 3u);
}

TEST_F(PollerStaging, AStoppedTransferIsIdleOnlyWhenItsGatheringHasEnded) {
  open_ends({true, false});
  start(shuffled_plan(512, 256, 7), 0);
  run_until_moving(*sender->mover);
  sender->loop->execute(StopTransfer{kTransfer});
  while (sender->mover->running() > 0) {
    ASSERT_EQ(idle(), nullptr) << "a kernel still reads the pages";
    run(1);
  }
  run(50);
  ASSERT_NE(idle(), nullptr);
  EXPECT_FALSE(idle()->complete);
}

TEST_F(PollerStaging, SlotsAreDisarmedOnlyWhenTheirScatteringHasEnded) {
  open_ends({false, true});
  start(shuffled_plan(512, 256, 7), 0);
  run_until_moving(*receiver->mover);
  receiver->loop->execute(DisarmPacked{slots, 5});
  receiver->step();
  while (receiver->mover->running() > 0) {
    ASSERT_EQ(receiver->last<PackedDisarmed>(), nullptr) << "a kernel still writes the pages";
    run(1);
  }
  run(5);
  ASSERT_NE(receiver->last<PackedDisarmed>(), nullptr);
  EXPECT_EQ(receiver->last<PackedDisarmed>()->tag, 5u);
  const std::vector<std::byte> before(receiver->bytes().begin(), receiver->bytes().end());
  run(2000);
  EXPECT_TRUE(std::ranges::equal(before, receiver->bytes()));
}

TEST_F(PollerStaging, NeitherEndSleepsWhileSomethingIsBeingCopied) {
  open_ends({true, true});
  start(shuffled_plan(64, 256, 7), 0);
  run_until_moving(*sender->mover);
  EXPECT_FALSE(sender->loop->idle());
  run_until_moving(*receiver->mover);
  EXPECT_FALSE(receiver->loop->idle());
}

TEST_F(PollerStaging, AKernelThatCannotStartStopsTheTransferWithItsError) {
  open_ends({true, false});
  start(shuffled_plan(512, 256, 7), 0);
  sender->mover->fail_next(1);
  run(20'000);
  ASSERT_NE(idle(), nullptr);
  EXPECT_FALSE(idle()->complete);
  ASSERT_TRUE(idle()->error);
  EXPECT_NE(idle()->error->message.find("no kernel"), std::string::npos);
}

TEST_F(PollerStaging, MemoryThatNobodyCanMoveIsRefusedAtOnce) {
  open_ends({true, false});
  receiver_on_gpu = true;  // only that Packing::only is set
  sender->loop = nullptr;
  auto bare = std::make_unique<test::Device>(network, 1, 256 * 1024, 8);
  bare->region = sender->region;
  bare->loop->execute(UseStaging{bare->staging, kSlotBytes, 8});
  sender = std::move(bare);
  start(shuffled_plan(64, 256, 7), 0);
  run(100);
  ASSERT_NE(idle(), nullptr);
  ASSERT_TRUE(idle()->error);
  EXPECT_EQ(idle()->error->code, ErrorCode::kUnsupported);
}

TEST_F(PollerStaging, ChunksThatNoSlotTakesAreRefusedAtOnce) {
  open_ends({false, true});
  start(shuffled_plan(16, 2 * kSlotBytes, 7), 0);
  run(100);
  ASSERT_NE(idle(), nullptr);
  ASSERT_TRUE(idle()->error);
  EXPECT_EQ(idle()->error->code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(untouched());
}

TEST_F(PollerStaging, EndsWhatIsBeingCopiedWhenTheLoopsAreDestroyed) {
  open_ends({true, true});
  start(shuffled_plan(512, 256, 10), 0);
  run_until_moving(*receiver->mover);
  receiver.reset();  // AddressSanitizer watches
  sender.reset();
}

}  // namespace
}  // namespace penstock
