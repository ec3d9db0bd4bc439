// Cards that are reopened, links that move and close, messages and immediates.
#include <gtest/gtest.h>

#include "tests/transport/poller/rig.hpp"

namespace penstock {
namespace {

using test::Rig;
using test::shuffled_plan;
using namespace std::chrono_literals;

constexpr std::uint64_t kAll = 1u << 30;

TEST(PollerQuiet, ReopeningACardDirtiesEveryTransferThatHasSomethingOnIt) {
  Rig rig(19, 2);
  auto& first = rig.add_peer();
  auto& second = rig.add_peer();
  first.card->stall(true);
  auto on_both = rig.start(1, first, shuffled_plan(Rig::kPages, Rig::kPageBytes));
  auto only_first_card = rig.start(2, second, shuffled_plan(Rig::kPages, Rig::kPageBytes));
  only_first_card.paths.resize(1);
  auto only_second_card = rig.start(3, second, shuffled_plan(Rig::kPages, Rig::kPageBytes));
  only_second_card.paths.erase(only_second_card.paths.begin());
  for (auto* command : {&on_both, &only_first_card, &only_second_card}) {
    rig.loop->execute(*command);
    rig.loop->execute(Grant{command->transfer, kAll});
  }
  rig.step();
  rig.loop->execute(StopTransfer{1});
  rig.step();
  rig.take<TransferIdle>();
  rig.loop->execute(ReopenOutbound{0});
  rig.loop->execute(ReopenOutbound{1});
  rig.step();
  // The one that was stopped is idle now. The others go on with what was not out, over the same
  // cards, and come to an end with what was cut off still to be done.
  auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0].transfer, 1u);
  EXPECT_EQ(idle[0].dirty_nics, (std::vector<std::uint16_t>{0, 1}));
  rig.run();
  idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 2u);
  for (const auto& each : idle) {
    EXPECT_FALSE(each.complete);
    EXPECT_GT(each.completed_bytes, 0u);
    EXPECT_EQ(each.dirty_nics,
              std::vector<std::uint16_t>{static_cast<std::uint16_t>(each.transfer - 2)});
  }
  EXPECT_EQ(rig.count<LinkFailed>(), 0u) << "it was our doing, not the links'";
  // Others go on after a resume, and everything lands.
  for (const auto& command : {only_first_card, only_second_card}) {
    rig.loop->execute(ResumeTransfer{command.transfer, command.paths});
    rig.loop->execute(Grant{command.transfer, kAll});
  }
  rig.run();
  idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 2u);
  for (const auto& each : idle) EXPECT_TRUE(each.complete);
}

TEST(PollerQuiet, NoCompletionOfACutOffOperationIsTakenForALaterOne) {
  Rig rig(20);
  auto& peer = rig.add_peer();
  rig.loop->execute(rig.start(1, peer, shuffled_plan(Rig::kPages, Rig::kPageBytes)));
  rig.loop->execute(Grant{1, kAll});
  rig.step();
  const auto cut_off = rig.cards[0]->posts();
  rig.network.advance(1ms);  // completions wait in the card, not yet polled
  rig.loop->execute(ReopenOutbound{0});
  rig.run();
  const auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0].completed_bytes, (Rig::kPages - cut_off) * Rig::kPageBytes);
  rig.loop->execute(ResumeTransfer{1, peer.paths});
  rig.loop->execute(Grant{1, kAll});
  rig.run();
  EXPECT_TRUE(rig.take<TransferIdle>().at(0).complete);
}

TEST(PollerQuiet, ACardThatDoesNotOpenAgainIsOutAndTheOthersGoOn) {
  Rig rig(21, 2);
  auto& peer = rig.add_peer();
  const auto plan = shuffled_plan(Rig::kPages, Rig::kPageBytes);
  rig.cards[0]->fail_reopen(true);
  rig.loop->execute(rig.start(1, peer, plan));
  rig.loop->execute(Grant{1, kAll});
  rig.step();
  rig.loop->execute(ReopenOutbound{0});
  rig.run();
  const auto state = rig.take<NicState>();
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(state[0].nic, 0);
  EXPECT_FALSE(state[0].up);
  ASSERT_EQ(rig.take<TransferIdle>().size(), 1u);
  const auto before = rig.cards[0]->posts();
  rig.loop->execute(ResumeTransfer{1, peer.paths});
  rig.loop->execute(Grant{1, kAll});
  rig.run();
  EXPECT_TRUE(rig.take<TransferIdle>().at(0).complete);
  EXPECT_EQ(rig.cards[0]->posts(), before);
  EXPECT_TRUE(rig.arrived(*plan, peer));
}

TEST(PollerQuiet, ClosingALinkStopsTransfersThatHaveNoOther) {
  Rig rig(22);
  auto& peer = rig.add_peer();
  rig.loop->execute(rig.start(1, peer, shuffled_plan(Rig::kPages, Rig::kPageBytes)));
  rig.loop->execute(Grant{1, kAll});
  rig.step();
  ASSERT_EQ(rig.cards[0]->peers(), 2u);
  rig.loop->execute(CloseLink{peer.links[0]});
  EXPECT_EQ(rig.cards[0]->peers(), 2u) << "something is posted to it";
  rig.run();
  EXPECT_EQ(rig.cards[0]->peers(), 0u);
  const auto idle = rig.take<TransferIdle>();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0].error.value().code, ErrorCode::kPeerUnreachable);
}

TEST(PollerQuiet, AMovedLinkUsesTheNewAddressAndDropsTheOldWhenQuiet) {
  Rig rig(23);
  auto& peer = rig.add_peer();
  const auto plan = shuffled_plan(Rig::kPages, Rig::kPageBytes);
  rig.loop->execute(rig.start(1, peer, plan));
  rig.loop->execute(Grant{1, 8 * Rig::kPageBytes});
  rig.step();
  ASSERT_TRUE(peer.card->reopen_inbound());
  rig.loop->execute(MoveLink{peer.links[0], peer.card->inbound_address()});
  EXPECT_EQ(rig.cards[0]->peers(), 3u);
  rig.run();
  EXPECT_EQ(rig.cards[0]->peers(), 2u);
  ASSERT_EQ(rig.take<TransferIdle>().size(), 1u) << "writes to the old address failed";
  rig.loop->execute(ResumeTransfer{1, peer.paths});
  rig.loop->execute(Grant{1, kAll});
  rig.run();
  EXPECT_TRUE(rig.take<TransferIdle>().at(0).complete);
  EXPECT_TRUE(rig.arrived(*plan, peer));
}

TEST(PollerQuiet, ALinkWithoutInboundAddressOnlySendsMessages) {
  Rig rig(24);
  auto& peer = rig.add_peer();
  rig.loop->execute(OpenLink{50, 0, peer.card->control_address(), {}});
  auto command = rig.start(1, peer, shuffled_plan(4, Rig::kPageBytes));
  command.paths[0].link = 50;
  rig.loop->execute(command);
  rig.loop->execute(Grant{1, kAll});
  rig.loop->execute(SendMessage{50, std::vector<std::byte>(10, std::byte{9})});
  rig.run();
  EXPECT_EQ(rig.count<TransferIdle>(), 0u);
  EXPECT_TRUE(rig.loop->idle()) << "it has to wait, not to spin";
  std::array<Completion, 4> completions;
  ASSERT_EQ(peer.card->poll(completions), 1u);
  EXPECT_EQ(completions[0].payload.size(), 10u);
  rig.loop->execute(MoveLink{50, peer.card->inbound_address()});
  rig.run();
  EXPECT_TRUE(rig.take<TransferIdle>().at(0).complete);
}

TEST(PollerQuiet, MessagesSurviveAReopenOfTheOutboundEndpoint) {
  Rig rig(25);
  auto& peer = rig.add_peer();
  for (int i = 0; i < 5; ++i)
    rig.loop->execute(SendMessage{peer.links[0], std::vector<std::byte>(4, std::byte(i))});
  rig.step();
  rig.loop->execute(ReopenOutbound{0});
  rig.run();
  std::array<Completion, 16> completions;
  EXPECT_EQ(peer.card->poll(completions), 5u);
  EXPECT_EQ(rig.loop->counters(0).messages_sent.load(), 5u);
  EXPECT_EQ(rig.count<LinkFailed>(), 0u);
}

TEST(PollerQuiet, MessagesToAPeerThatNeverConnectsAreBoundedAndDoNotKeepThePollerAwake) {
  sim::SimNicOptions options;
  options.connect = 24h;
  Rig rig(26, 1, options);
  auto& peer = rig.add_peer();
  for (int i = 0; i < 300; ++i)
    rig.loop->execute(SendMessage{peer.links[0], std::vector<std::byte>(4)});
  rig.step();
  EXPECT_EQ(rig.take<LinkFailed>().size(), 300u - 256u);
  rig.step();
  EXPECT_TRUE(rig.loop->idle());
  ASSERT_TRUE(rig.loop->next_retry());
  EXPECT_GT(*rig.loop->next_retry(), rig.network.now());
  // The pauses grow to tens of milliseconds.
  for (int i = 0; i < 30; ++i) {
    rig.network.advance(*rig.loop->next_retry() - rig.network.now());
    rig.step();
  }
  EXPECT_GE(*rig.loop->next_retry() - rig.network.now(), 10ms);
}

TEST(PollerQuiet, ImmediatesAreCountedOnceAndStraysAreDropped) {
  Rig rig(27);
  auto& peer = rig.add_peer();
  // The peer writes to us.
  const auto into = rig.cards[0]->add_peer(peer.card->inbound_address()).value();
  const auto us = peer.card->add_peer(rig.cards[0]->inbound_address()).value();
  rig.cards[0]->remove_peer(into);
  std::vector<OperationContext> contexts(16);
  const auto arrive = [&](std::uint32_t immediate) {
    OneSided write;
    write.peer = us;
    write.local[0] = {peer.memory.data(), 8};
    write.length = 8;
    write.remote_key = rig.local->registrations[0]->key();
    write.immediate = immediate;
    ASSERT_EQ(peer.card->post(write, &contexts[0]).status, PostStatus::kPosted);
    rig.network.advance(1ms);
    rig.step();
  };
  rig.loop->execute(ArmImmediate{0, 2});
  rig.loop->execute(ArmImmediate{0xffffffff, 1});
  arrive(0);
  EXPECT_EQ(rig.count<ImmediateComplete>(), 0u);
  arrive(0xffffffff);
  EXPECT_EQ(rig.take<ImmediateComplete>().at(0).immediate, 0xffffffffu);
  arrive(0);
  EXPECT_EQ(rig.take<ImmediateComplete>().at(0).immediate, 0u);
  arrive(0);
  arrive(17);
  EXPECT_EQ(rig.count<ImmediateComplete>(), 0u);
  EXPECT_EQ(rig.loop->counters(0).stray_immediates.load(), 1u);
  // Armed before its count is known: what arrived meanwhile counts.
  rig.loop->execute(ArmImmediate{5, 0xffffffff});
  arrive(5);
  arrive(5);
  rig.loop->execute(ArmImmediate{5, 2});
  rig.step();
  EXPECT_EQ(rig.take<ImmediateComplete>().size(), 1u);
  rig.loop->execute(DisarmImmediate{5});
  arrive(5);
  EXPECT_EQ(rig.loop->counters(0).stray_immediates.load(), 2u);
}

TEST(PollerQuiet, ALoopIsNeitherIdleNorQuietWhilePeersAreAtWork) {
  Rig rig(29);
  rig.step();
  EXPECT_TRUE(rig.loop->idle() && rig.loop->quiet());
  rig.loop->execute(PeersAtWork{true});
  rig.step();
  EXPECT_FALSE(rig.loop->idle() || rig.loop->quiet());
  rig.loop->execute(PeersAtWork{false});
  rig.step();
  EXPECT_TRUE(rig.loop->idle() && rig.loop->quiet());
}

TEST(PollerQuiet, ReopeningInboundAnswersEvenWhenItHappenedAlready) {
  Rig rig(28);
  rig.loop->execute(ReopenInbound{0, 1});
  rig.loop->execute(ReopenInbound{0, 1});
  rig.loop->execute(ReopenInbound{9, 1});
  rig.step();
  const auto answers = rig.take<InboundReopened>();
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0].generation, 2u);
  EXPECT_EQ(answers[1].generation, 2u);
  EXPECT_EQ(answers[0].address, answers[1].address);
  EXPECT_TRUE(answers[2].error);
}

TEST(PollerQuiet, EndingATransferThatIsNotIdleWaitsForItsOperations) {
  Rig rig(29);
  auto& peer = rig.add_peer();
  rig.loop->execute(rig.start(1, peer, shuffled_plan(Rig::kPages, Rig::kPageBytes)));
  rig.loop->execute(Grant{1, kAll});
  rig.step();
  rig.loop->execute(EndTransfer{1});
  rig.run();
  EXPECT_EQ(rig.take<TransferIdle>().size(), 1u);
  rig.loop->execute(StopTransfer{1});
  rig.run();
  EXPECT_EQ(rig.take<TransferIdle>().at(0).error.value().code, ErrorCode::kNotFound)
      << "it is forgotten";
}

}  // namespace
}  // namespace penstock
