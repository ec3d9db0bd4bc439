#include <gtest/gtest.h>

#include "tests/transport/poller/rig.hpp"

namespace penstock {
namespace {

using test::Rig;
using test::shuffled_plan;
using namespace std::chrono_literals;

constexpr std::uint64_t kAll = 1u << 30;

TEST(PollerLoop, MovesEveryPageOfAWriteAndSaysSoOnce) {
  Rig rig(1);
  auto& peer = rig.add_peer();
  const auto plan = shuffled_plan(Rig::kPages, Rig::kPageBytes, 7);
  rig.loop->execute(rig.start(5, peer, plan));
  rig.loop->execute(Grant{5, kAll});
  rig.run();
  const auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_TRUE(idle[0].complete);
  EXPECT_FALSE(idle[0].error);
  EXPECT_EQ(idle[0].completed_bytes, plan->bytes());
  EXPECT_EQ(idle[0].shares.at(0).writes, Rig::kPages);
  EXPECT_TRUE(idle[0].landed.empty());
  EXPECT_TRUE(rig.arrived(*plan, peer));
  EXPECT_EQ(rig.cards[0]->posts(), Rig::kPages);
  EXPECT_EQ(rig.loop->counters(0).written_bytes.load(), plan->bytes());
}

TEST(PollerLoop, ReadsFetchThePeersPages) {
  Rig rig(2);
  auto& peer = rig.add_peer();
  for (std::size_t i = 0; i < peer.memory.size(); ++i) peer.memory[i] = std::byte(i * 31);
  auto command = rig.start(5, peer, shuffled_plan(Rig::kPages, Rig::kPageBytes));
  command.direction = Direction::kRead;
  rig.loop->execute(command);
  rig.loop->execute(Grant{5, kAll});
  rig.run();
  ASSERT_EQ(rig.take<TransferIdle>().size(), 1u);
  EXPECT_TRUE(
      std::equal(peer.memory.begin(), peer.memory.end(), rig.local_memory->bytes().begin()));
}

TEST(PollerLoop, PostsNothingBeyondItsGrantButWholeChunks) {
  Rig rig(3);
  auto& peer = rig.add_peer();
  rig.loop->execute(rig.start(5, peer, shuffled_plan(64, Rig::kPageBytes)));
  rig.run();
  EXPECT_EQ(rig.cards[0]->posts(), 0u);
  rig.loop->execute(Grant{5, 10 * Rig::kPageBytes + 1});
  rig.run();
  EXPECT_EQ(rig.cards[0]->posts(), 11u);
  EXPECT_EQ(rig.count<TransferIdle>(), 0u);
}

TEST(PollerLoop, AsksForMoreAtMostOncePerGrantAndNotAtTheEnd) {
  Rig rig(4);
  auto& peer = rig.add_peer();
  rig.loop->execute(rig.start(5, peer, shuffled_plan(64, Rig::kPageBytes)));
  for (int grant = 0; grant < 8; ++grant) {
    rig.loop->execute(Grant{5, 8 * Rig::kPageBytes});
    rig.run();
    EXPECT_EQ(rig.take<QuantumDone>().size(), grant < 7 ? 1u : 0u) << grant;
  }
  EXPECT_EQ(rig.take<TransferIdle>().size(), 1u);
}

TEST(PollerLoop, AskingComesBeforeTheQuantumRunsDry) {
  PollerOptions options;
  options.card_window_operations = 4;
  Rig rig(5, 1, {}, options);
  auto& peer = rig.add_peer();
  rig.loop->execute(rig.start(5, peer, shuffled_plan(64, Rig::kPageBytes)));
  rig.loop->execute(Grant{5, 32 * Rig::kPageBytes});
  while (rig.count<QuantumDone>() == 0) {
    rig.step();
    rig.network.advance_to_next();
  }
  EXPECT_LE(rig.cards[0]->posts(), 20u);
  EXPECT_GE(rig.cards[0]->posts(), 16u);
}

TEST(PollerLoop, EmptyWorkIsCompleteAtOnce) {
  Rig rig(6);
  auto& peer = rig.add_peer();
  rig.loop->execute(rig.start(5, peer, shuffled_plan(0, Rig::kPageBytes)));
  rig.step();
  const auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_TRUE(idle[0].complete);
}

TEST(PollerLoop, AGrantForAnUnknownTransferIsIgnored) {
  Rig rig(7);
  rig.add_peer();
  rig.loop->execute(Grant{99, kAll});
  rig.loop->execute(EndTransfer{99});
  rig.run();
  EXPECT_TRUE(rig.events.empty());
  EXPECT_TRUE(rig.loop->idle());
}

TEST(PollerLoop, WhoStopsOrResumesAnUnknownTransferIsToldThatItIsIdle) {
  Rig rig(7);
  rig.add_peer();
  rig.loop->execute(StopTransfer{99});
  rig.loop->execute(ResumeTransfer{99, {}});
  rig.run();
  const auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 2u);
  for (const auto& each : idle) {
    EXPECT_EQ(each.transfer, 99u);
    EXPECT_FALSE(each.complete);
    EXPECT_EQ(each.error.value().code, ErrorCode::kNotFound);
  }
}

TEST(PollerLoop, AnUnknownLinkFailsByNameAndTheTransferWithIt) {
  Rig rig(8);
  auto& peer = rig.add_peer();
  auto command = rig.start(5, peer, shuffled_plan(4, Rig::kPageBytes));
  command.paths = {{777, 0, 1}};
  rig.loop->execute(command);
  rig.loop->execute(SendMessage{777, std::vector<std::byte>(3)});
  rig.loop->execute(MoveLink{777, FabricAddress(8)});
  rig.loop->execute(CloseLink{777});
  rig.run();
  EXPECT_EQ(rig.take<LinkFailed>().size(), 3u);
  const auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 1u);
  ASSERT_TRUE(idle[0].error);
  EXPECT_EQ(idle[0].error->code, ErrorCode::kPeerUnreachable);
  EXPECT_FALSE(idle[0].complete);
}

TEST(PollerLoop, APlanBeyondTheLocalRegionIsRefusedBeforeAnythingIsPosted) {
  Rig rig(9);
  auto& peer = rig.add_peer();
  rig.loop->execute(rig.start(5, peer, shuffled_plan(Rig::kPages + 1, Rig::kPageBytes)));
  rig.loop->execute(Grant{5, kAll});
  rig.run();
  const auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0].error.value().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(rig.cards[0]->posts(), 0u);
}

TEST(PollerLoop, StopEndsWhenTheLastOperationIsOutAndNotBefore) {
  Rig rig(10);
  auto& peer = rig.add_peer();
  rig.loop->execute(rig.start(5, peer, shuffled_plan(Rig::kPages, Rig::kPageBytes)));
  rig.loop->execute(Grant{5, kAll});
  rig.step();
  const auto posted = rig.cards[0]->posts();
  ASSERT_GT(posted, 0u);
  rig.loop->execute(StopTransfer{5});
  rig.step();
  EXPECT_EQ(rig.count<TransferIdle>(), 0u);
  rig.run();
  const auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_FALSE(idle[0].complete);
  EXPECT_EQ(rig.cards[0]->posts(), posted);
  EXPECT_EQ(idle[0].completed_bytes, posted * Rig::kPageBytes);
  std::size_t landed = 0;
  for (const auto word : idle[0].landed) landed += static_cast<std::size_t>(std::popcount(word));
  EXPECT_EQ(landed, posted);
  rig.loop->execute(StopTransfer{5});
  rig.run();
  EXPECT_EQ(rig.take<TransferIdle>().size(), 1u) << "a stop of an idle transfer is answered again";
}

TEST(PollerLoop, AFailureOfTheOnlyPathStopsTheTransferAndNamesTheCard) {
  Rig rig(11);
  auto& peer = rig.add_peer();
  rig.cards[0]->fail_next(1);
  rig.loop->execute(rig.start(5, peer, shuffled_plan(Rig::kPages, Rig::kPageBytes)));
  rig.loop->execute(Grant{5, kAll});
  rig.run();
  const auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_FALSE(idle[0].complete);
  EXPECT_TRUE(idle[0].error);
  EXPECT_EQ(idle[0].dirty_nics, std::vector<std::uint16_t>{0});
  EXPECT_EQ(idle[0].dirty_links, std::vector<LinkId>{peer.links[0]});
  EXPECT_EQ(rig.take<LinkFailed>().size(), 1u);
  EXPECT_LT(rig.cards[0]->posts(), Rig::kPages);
}

TEST(PollerLoop, AResumedTransferRepeatsOnlyWhatFailedAndWithoutImmediates) {
  Rig rig(12);
  auto& peer = rig.add_peer();
  const auto plan = shuffled_plan(Rig::kPages, Rig::kPageBytes, 3);
  auto command = rig.start(5, peer, plan);
  command.immediate = 42;
  rig.cards[0]->keep_history();
  rig.cards[0]->fail_next(3);
  rig.loop->execute(command);
  rig.loop->execute(Grant{5, kAll});
  rig.run();
  ASSERT_EQ(rig.take<TransferIdle>().size(), 1u);
  const auto before = rig.cards[0]->posts();
  for (const auto& each : rig.cards[0]->history()) EXPECT_EQ(each.immediate, 42u);
  rig.loop->execute(ResumeTransfer{5, peer.paths});
  rig.run();
  EXPECT_EQ(rig.cards[0]->posts(), before) << "grants from before the stop are void";
  rig.loop->execute(Grant{5, kAll});
  rig.run();
  const auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_TRUE(idle[0].complete);
  EXPECT_EQ(rig.cards[0]->posts(), Rig::kPages + 3);
  for (std::size_t i = before; i < rig.cards[0]->history().size(); ++i)
    EXPECT_FALSE(rig.cards[0]->history()[i].immediate);
  EXPECT_TRUE(rig.arrived(*plan, peer));
}

TEST(PollerLoop, AFullPeerDoesNotStarveTheOthers) {
  Rig rig(13);
  sim::SimNicOptions options;
  auto& full = rig.add_peer(options);
  auto& free = rig.add_peer(options);
  full.card->stall(true);
  rig.loop->execute(rig.start(1, full, shuffled_plan(Rig::kPages, Rig::kPageBytes)));
  rig.loop->execute(rig.start(2, free, shuffled_plan(Rig::kPages, Rig::kPageBytes)));
  rig.loop->execute(Grant{1, kAll});
  rig.loop->execute(Grant{2, kAll});
  rig.run_for(2ms);
  const auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0].transfer, 2u);
  EXPECT_TRUE(idle[0].complete);
  EXPECT_GT(rig.loop->counters(0).again.load(), 0u);
  full.card->stall(false);
  rig.run();
  EXPECT_EQ(rig.take<TransferIdle>().size(), 1u);
}

TEST(PollerLoop, ALinkNeverHoldsMoreThanItsWindow) {
  PollerOptions options;
  options.link_window_operations = 5;
  options.link_window_bytes = 3 * Rig::kPageBytes;
  sim::SimNicOptions card;
  card.depth_per_peer = 1000;
  Rig rig(14, 1, card, options);
  auto& peer = rig.add_peer();
  rig.loop->execute(rig.start(1, peer, shuffled_plan(Rig::kPages, Rig::kPageBytes)));
  rig.loop->execute(Grant{1, kAll});
  for (int i = 0; i < 100; ++i) {
    rig.step();
    EXPECT_LE(rig.cards[0]->out(), 3u);
    rig.network.advance(1us);
  }
  rig.run();
  EXPECT_TRUE(rig.take<TransferIdle>().at(0).complete);
}

TEST(PollerLoop, CountedWritesStayWithinTheReceiversCredits) {
  PollerOptions options;
  options.immediate_credits = 7;
  Rig rig(15, 1, {}, options);
  auto& peer = rig.add_peer();
  auto command = rig.start(1, peer, shuffled_plan(Rig::kPages, Rig::kPageBytes));
  command.immediate = 0;
  rig.loop->execute(command);
  rig.loop->execute(Grant{1, kAll});
  for (int i = 0; i < 100; ++i) {
    rig.step();
    EXPECT_LE(rig.cards[0]->out(), 7u);
    rig.network.advance(1us);
  }
  rig.run();
  EXPECT_TRUE(rig.take<TransferIdle>().at(0).complete);
}

TEST(PollerLoop, BulkTransfersShareByBytesWhateverTheirChunks) {
  PollerOptions options;
  options.card_window_bytes = 512 * 1024;
  sim::SimNicOptions card;
  card.depth_per_peer = 4096;
  Rig rig(16, 1, card, options);
  // Large regions of their own: the turns are long against the rig's usual pages.
  auto memory = std::make_shared<test::HeapMemory>(64u << 20);
  auto region = std::make_shared<RegisteredMemory>();
  region->memory = memory;
  region->registrations.push_back(rig.cards[0]->register_memory(memory->bytes()).value());
  std::vector<std::byte> remote(64u << 20);
  auto& small = rig.add_peer();
  auto& large = rig.add_peer();
  const auto small_key = small.card->register_memory(remote).value();
  const auto large_key = large.card->register_memory(remote).value();
  StartTransfer command;
  command.local = region;
  command.transfer = 1;
  command.plan = shuffled_plan(16384, 4096);
  command.paths = {{small.links[0], 0, small_key->key()}};
  rig.loop->execute(command);
  command.transfer = 2;
  command.plan = shuffled_plan(64, 1u << 20);
  command.paths = {{large.links[0], 0, large_key->key()}};
  rig.loop->execute(command);
  rig.loop->execute(Grant{1, kAll});
  rig.loop->execute(Grant{2, kAll});
  rig.run_for(4ms);  // 40 MB of line
  const auto bytes_small = static_cast<double>(
      rig.cards[0]->bytes_to(small.card->add_peer(small.card->inbound_address()).value()));
  const auto bytes_large = static_cast<double>(
      rig.cards[0]->bytes_to(large.card->add_peer(large.card->inbound_address()).value()));
  ASSERT_GT(bytes_large, 4e6);
  EXPECT_NEAR(bytes_small / bytes_large, 1.0, 0.15);
}

TEST(PollerLoop, AnUrgentTransferOvertakesTheBulk) {
  PollerOptions options;
  options.card_window_operations = 8;
  Rig rig(17, 1, {}, options);
  auto& peer = rig.add_peer();
  rig.loop->execute(rig.start(1, peer, shuffled_plan(Rig::kPages, Rig::kPageBytes)));
  rig.loop->execute(Grant{1, kAll});
  rig.step();
  auto urgent = rig.start(2, peer, shuffled_plan(4, Rig::kPageBytes));
  urgent.lane = Lane::kUrgent;
  rig.loop->execute(urgent);
  rig.loop->execute(Grant{2, kAll});
  while (rig.count<TransferIdle>() == 0) {
    rig.step();
    rig.network.advance_to_next();
  }
  EXPECT_EQ(rig.take<TransferIdle>().at(0).transfer, 2u);
  EXPECT_LE(rig.cards[0]->posts(), 8u + 4u + 8u);
}

TEST(PollerLoop, CardsTakeWorkByTheirSpeedAndADeadOneNone) {
  Rig rig(18, 3);
  rig.cards[0]->options().bytes_per_second = 2e9;
  rig.cards[1]->options().bytes_per_second = 1e9;
  rig.cards[2]->refuse_posts(false);
  rig.cards[2]->options().connect = 1h;  // never connects
  auto memory = std::make_shared<test::HeapMemory>(32u << 20);
  auto region = std::make_shared<RegisteredMemory>();
  region->memory = memory;
  for (auto* card : rig.cards)
    region->registrations.push_back(card->register_memory(memory->bytes()).value());
  std::vector<std::byte> remote(32u << 20);
  auto& peer = rig.add_peer();
  const auto registration = peer.card->register_memory(remote).value();
  StartTransfer command;
  command.transfer = 1;
  command.local = region;
  command.plan = shuffled_plan(2048, 16384);
  for (const auto link : peer.links) command.paths.push_back({link, 0, registration->key()});
  rig.loop->execute(command);
  rig.loop->execute(Grant{1, kAll});
  rig.run(200'000);
  const auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_TRUE(idle[0].complete);
  const auto fast = static_cast<double>(idle[0].shares[0].bytes);
  const auto slow = static_cast<double>(idle[0].shares[1].bytes);
  EXPECT_NEAR(fast / slow, 2.0, 0.2);
  EXPECT_EQ(idle[0].shares[2].bytes, 0u);
}

}  // namespace
}  // namespace penstock
