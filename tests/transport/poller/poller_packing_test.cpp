// Packed transfers: two polling loops on simulated cards, small pages between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "tests/sim/sim_nic.hpp"
#include "tests/transport/poller/rig.hpp"
#include "transport/packing/credit.hpp"
#include "transport/packing/packed_buffer.hpp"

namespace penstock {
namespace {

using sim::SimNetwork;
using sim::SimNic;
using test::HeapMemory;
using test::shuffled_plan;

constexpr std::uint64_t kSlotBytes = 4096;
constexpr TransferId kTransfer = 77;

/// A device: a loop, its cards, a region and staging memory, both registered with every card.
struct Device {
  Device(SimNetwork& network, std::size_t card_count, std::uint64_t region_bytes,
         std::uint64_t slots)
      : region(memory(region_bytes)), staging(memory(slots * kSlotBytes)) {
    std::vector<std::unique_ptr<Nic>> nics;
    for (std::size_t i = 0; i < card_count; ++i) {
      auto card = std::make_unique<SimNic>(network, sim::SimNicOptions{});
      cards.push_back(card.get());
      for (const auto& each : {region, staging})
        each->registrations.push_back(card->register_memory(each->memory->bytes()).value());
      nics.push_back(std::move(card));
    }
    loop = std::make_unique<PollerLoop>(std::move(nics), PollerOptions{},
                                        [&network] { return network.now(); });
  }
  static std::shared_ptr<RegisteredMemory> memory(std::uint64_t bytes) {
    auto made = std::make_shared<RegisteredMemory>();
    made->memory = std::make_shared<HeapMemory>(bytes);
    return made;
  }
  std::span<std::byte> bytes() const { return region->memory->bytes(); }
  void step() {
    loop->step();
    for (auto& event : loop->take_events()) events.push_back(std::move(event));
  }
  template <class Event>
  const Event* last() const {
    for (auto it = events.rbegin(); it != events.rend(); ++it)
      if (const auto* event = std::get_if<Event>(&*it)) return event;
    return nullptr;
  }

  std::shared_ptr<RegisteredMemory> region;
  std::shared_ptr<RegisteredMemory> staging;
  std::vector<SimNic*> cards;
  std::unique_ptr<PollerLoop> loop;
  std::vector<PollerEvent> events;
};

class PollerPacking : public testing::Test {
 protected:
  void open(std::size_t cards, std::uint64_t send_slots, std::uint64_t lent_slots,
            std::uint64_t region_bytes = 256 * 1024) {
    sender = std::make_unique<Device>(network, cards, region_bytes, std::max(send_slots, 1ul));
    receiver = std::make_unique<Device>(network, cards, region_bytes, lent_slots);
    for (std::size_t i = 0; i < cards; ++i) {
      const auto nic = static_cast<std::uint16_t>(i);
      sender->loop->execute(OpenLink{i + 1, nic, receiver->cards[i]->control_address(),
                                     receiver->cards[i]->inbound_address(), 1});
      receiver->loop->execute(OpenLink{100 + i, nic, sender->cards[i]->control_address(), {}, 0});
      paths.push_back({i + 1, 0, receiver->region->registrations[i]->key(), 1, 0,
                       receiver->staging->registrations[i]->key()});
      credit_links.push_back(100 + i);
    }
    if (send_slots > 0) sender->loop->execute(UseStaging{sender->staging, kSlotBytes, send_slots});
    for (std::uint32_t i = 0; i < lent_slots; ++i) slots.push_back({1000 + i, i * kSlotBytes});
    receiver->loop->execute(ArmPacked{kTransfer, slots, kSlotBytes, receiver->staging->memory,
                                      receiver->region->memory, credit_links});
    std::mt19937_64 random(9);
    for (auto& byte : sender->bytes()) byte = static_cast<std::byte>(random());
  }
  void start(std::shared_ptr<const Plan> wanted, std::uint64_t below) {
    plan = std::move(wanted);
    StartTransfer command;
    command.transfer = kTransfer;
    command.plan = plan;
    command.local = sender->region;
    command.paths = paths;
    command.packing = Packing{below, kSlotBytes, slots};
    sender->loop->execute(std::move(command));
    sender->loop->execute(Grant{kTransfer, plan->bytes()});
  }
  void run(int rounds = 2000, bool receiver_too = true) {
    for (int round = 0; round < rounds; ++round) {
      sender->step();
      if (receiver_too) receiver->step();
      network.advance(std::chrono::microseconds(20));
    }
  }
  const TransferIdle* idle() const { return sender->last<TransferIdle>(); }
  /// Every byte of the plan is where it belongs.
  bool arrived() const {
    Cursor cursor(*plan);
    Chunk chunk;
    while (cursor.next(chunk))
      if (!std::ranges::equal(sender->bytes().subspan(chunk.source_offset, chunk.length),
                              receiver->bytes().subspan(chunk.destination_offset, chunk.length)))
        return false;
    return true;
  }
  std::uint64_t posts() const {
    std::uint64_t all = 0;
    for (const SimNic* card : sender->cards) all += card->posts();
    return all;
  }

  SimNetwork network{1};
  std::unique_ptr<Device> sender;
  std::unique_ptr<Device> receiver;
  std::vector<RemotePath> paths;
  std::vector<LinkId> credit_links;
  std::vector<StagingSlot> slots;
  std::shared_ptr<const Plan> plan;
};

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
