// Packed transfers: two polling loops on simulated cards, small pages between them.
#include "tests/transport/poller/packing_rig.hpp"
#include "transport/packing/credit.hpp"

namespace penstock {
namespace {

using test::kSlotBytes;
using test::kTransfer;
using test::shuffled_plan;

class PollerPacking : public test::PackingRig {};

TEST_F(PollerPacking, SmallPagesCrossInFewWrites) {
  open(2, 8, 8);
  start(shuffled_plan(1024, 256, 3), 1024);
  run();
  ASSERT_NE(idle(), nullptr);
  EXPECT_TRUE(idle()->complete);
  EXPECT_EQ(idle()->completed_bytes, plan->bytes());
  EXPECT_EQ(idle()->packed_bytes, plan->bytes());
  EXPECT_TRUE(arrived());
  EXPECT_LE(posts(), 1024u / 14 + 2);  // 14 pages of 256 bytes fit into a slot of 4 KiB
}

TEST_F(PollerPacking, OneSlotOnEachSideIsEnough) {
  open(1, 1, 1);
  start(shuffled_plan(512, 256, 4), 1024);
  run(20'000);
  ASSERT_NE(idle(), nullptr);
  EXPECT_TRUE(idle()->complete);
  EXPECT_EQ(idle()->packed_bytes, plan->bytes());
  EXPECT_TRUE(arrived());
}

TEST_F(PollerPacking, IsDoneOnlyWhenTheReceiverHasScattered) {
  open(1, 8, 8);
  start(shuffled_plan(64, 256, 5), 1024);
  run(200, /*receiver_too=*/false);
  EXPECT_EQ(idle(), nullptr);
  EXPECT_FALSE(sender->loop->idle()) << "a credit is owed";
  run();
  ASSERT_NE(idle(), nullptr);
  EXPECT_TRUE(idle()->complete);
  EXPECT_TRUE(arrived());
}

TEST_F(PollerPacking, WithoutASlotOfOurOwnPagesGoDirectly) {
  open(1, 0, 8);
  start(shuffled_plan(64, 256, 6), 1024);
  run();
  ASSERT_NE(idle(), nullptr);
  EXPECT_TRUE(idle()->complete);
  EXPECT_EQ(idle()->packed_bytes, 0u);
  EXPECT_EQ(posts(), 64u);
  EXPECT_TRUE(arrived());
}

TEST_F(PollerPacking, LongChunksGoDirectlyBetweenPackedOnes) {
  open(2, 4, 4);
  std::vector<Range> ranges;
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const std::uint64_t length = i % 10 == 9 ? 3000 : 100 + i;
    ranges.push_back({at, 200'000 - at - length, length});
    at += length;
  }
  start(Plan::make(Ranges{BlobList<Range>::of(ranges)}, {1 << 20, false}).value(), 1024);
  run();
  ASSERT_NE(idle(), nullptr);
  EXPECT_TRUE(idle()->complete);
  EXPECT_EQ(idle()->packed_bytes, plan->bytes() - 6 * 3000);
  EXPECT_TRUE(arrived());
}

TEST_F(PollerPacking, AStoppedTransferLeavesNothingOutAndGoesOnDirectly) {
  open(1, 8, 2);
  start(shuffled_plan(512, 256, 7), 1024);
  run(100, /*receiver_too=*/false);  // both slots are written, no credit comes
  sender->loop->execute(StopTransfer{kTransfer});
  run(100, /*receiver_too=*/false);
  ASSERT_NE(idle(), nullptr);
  EXPECT_FALSE(idle()->complete);
  EXPECT_EQ(idle()->completed_bytes, 0u);
  // What a fence does at the receiver: from here on nothing of it is scattered.
  receiver->loop->execute(DisarmPacked{slots, 5});
  receiver->step();
  ASSERT_NE(receiver->last<PackedDisarmed>(), nullptr);
  EXPECT_EQ(receiver->last<PackedDisarmed>()->tag, 5u);
  run(100);
  EXPECT_TRUE(std::ranges::all_of(receiver->bytes(), [](std::byte b) { return b == std::byte{}; }));
  sender->loop->execute(ResumeTransfer{kTransfer, paths});
  sender->loop->execute(Grant{kTransfer, plan->bytes()});
  run();
  EXPECT_TRUE(idle()->complete);
  EXPECT_EQ(idle()->packed_bytes, 0u);
  EXPECT_TRUE(arrived());
}

TEST_F(PollerPacking, AFailedPackedWriteIsDueAgainAsItsPages) {
  open(1, 8, 8);
  start(shuffled_plan(512, 256, 8), 1024);
  sender->cards[0]->fail_next(2);
  run();
  ASSERT_NE(idle(), nullptr);
  EXPECT_FALSE(idle()->complete);
  EXPECT_EQ(idle()->dirty_nics, std::vector<std::uint16_t>{0});
  sender->loop->execute(ResumeTransfer{kTransfer, paths});
  sender->loop->execute(Grant{kTransfer, plan->bytes()});
  run();
  EXPECT_TRUE(idle()->complete);
  EXPECT_EQ(idle()->completed_bytes, plan->bytes());
  EXPECT_TRUE(arrived());
}

TEST_F(PollerPacking, WhereNoCreditComesTheTransferStopsAndGoesOnDirectly) {
  open(1, 8, 2);
  receiver->loop->execute(ArmPacked{kTransfer,
                                    slots,
                                    kSlotBytes,
                                    receiver->staging->memory,
                                    receiver->region->memory,
                                    {999}});  // no such link
  start(shuffled_plan(512, 256, 11), 1024);
  run(20'000);  // 400 ms
  EXPECT_EQ(idle(), nullptr);
  run(10'000);
  ASSERT_NE(idle(), nullptr);
  EXPECT_FALSE(idle()->complete);
  ASSERT_TRUE(idle()->error);
  EXPECT_NE(idle()->error->message.find("scattered"), std::string::npos);
  sender->loop->execute(ResumeTransfer{kTransfer, paths});
  sender->loop->execute(Grant{kTransfer, plan->bytes()});
  run();
  EXPECT_TRUE(idle()->complete);
  EXPECT_TRUE(arrived());
}

TEST_F(PollerPacking, ACreditForAnotherSlotOrTransferChangesNothing) {
  open(1, 8, 2);
  start(shuffled_plan(64, 256, 9), 1024);
  run(50, /*receiver_too=*/false);
  for (const auto& [transfer, immediate] :
       {std::pair<TransferId, std::uint32_t>{kTransfer, 5}, {kTransfer + 1, 1000}})
    receiver->loop->execute(SendMessage{100, encode_credit({transfer, {immediate}})});
  receiver->loop->execute(DisarmPacked{slots, 0});
  run();
  EXPECT_EQ(idle(), nullptr);
}

TEST_F(PollerPacking, EndsEveryBundleThatIsOutWhenTheLoopIsDestroyed) {
  open(2, 8, 8);
  start(shuffled_plan(512, 256, 10), 1024);
  sender->step();
  sender.reset();  // AddressSanitizer watches
}

}  // namespace
}  // namespace penstock
