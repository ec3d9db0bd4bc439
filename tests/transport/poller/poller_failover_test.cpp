// Several cards: one fails, stands still or does not open any more, and the others carry on.
#include <gtest/gtest.h>

#include <set>

#include "tests/transport/poller/rig.hpp"

namespace penstock {
namespace {

using test::Rig;
using test::shuffled_plan;
using namespace std::chrono_literals;

constexpr std::uint64_t kAll = 1u << 30;

PollerOptions small_windows() {
  PollerOptions options;
  options.card_window_operations = 16;
  options.link_window_operations = 8;
  options.immediate_credits = 8;
  return options;
}

class Failover : public testing::Test {
 protected:
  /// A transfer over four cards, a little of it done.
  void begin(std::uint64_t grant = kAll) {
    rig.loop->execute(rig.start(1, peer, plan));
    rig.loop->execute(Grant{1, grant});
    for (int i = 0; i < 3; ++i) {
      rig.step();
      rig.network.advance(10us);
    }
  }
  /// Lets time pass, at most this much.
  void run_for(std::chrono::milliseconds time) {
    const auto end = rig.network.now() + time;
    while (rig.network.now() < end) {
      rig.step();
      rig.network.advance(100us);
    }
  }
  void resume(const std::vector<RemotePath>& paths) {
    rig.loop->execute(ResumeTransfer{1, paths});
    rig.loop->execute(Grant{1, kAll});
    rig.run();
  }
  TransferIdle idle() {
    auto all = rig.take<TransferIdle>();
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? TransferIdle{} : all.front();
  }

  Rig rig{41, 4, {}, small_windows()};
  Rig::Peer& peer = rig.add_peer();
  std::shared_ptr<const Plan> plan = shuffled_plan(Rig::kPages, Rig::kPageBytes, 7);
};

TEST_F(Failover, WhenACardDiesTheRestGoesOverTheOthersAndOnlyItsChunksAreLeft) {
  begin();
  const auto before = rig.cards[2]->posts();
  rig.cards[2]->die();
  rig.run();
  const TransferIdle event = idle();
  EXPECT_FALSE(event.complete);
  EXPECT_TRUE(event.error);
  EXPECT_EQ(event.dirty_nics, std::vector<std::uint16_t>{2});
  EXPECT_EQ(event.dirty_links, std::vector<LinkId>{peer.links[2]});
  EXPECT_LE(rig.cards[2]->posts(), before + 16) << "nothing more is posted on it";
  EXPECT_GE(event.completed_bytes, (Rig::kPages - 16) * Rig::kPageBytes);
  EXPECT_EQ(rig.take<LinkFailed>().size(), 1u);
  const auto posts = rig.cards[0]->posts() + rig.cards[1]->posts() + rig.cards[3]->posts();
  resume({peer.paths[0], peer.paths[1], peer.paths[3]});
  EXPECT_TRUE(idle().complete);
  EXPECT_TRUE(rig.arrived(*plan, peer));
  EXPECT_EQ(rig.cards[0]->posts() + rig.cards[1]->posts() + rig.cards[3]->posts() - posts,
            Rig::kPages - event.completed_bytes / Rig::kPageBytes)
      << "only what failed is posted again";
}

TEST_F(Failover, NoChunkIsPostedTwiceBeforeAResume) {
  for (auto* card : rig.cards) card->keep_history();
  begin();
  rig.cards[0]->die();
  rig.cards[3]->fail_next(4);
  rig.run();
  EXPECT_FALSE(idle().complete);
  std::set<std::uint64_t> places;
  std::size_t posts = 0;
  for (auto* card : rig.cards)
    for (const auto& each : card->history()) {
      ++posts;
      places.insert(each.remote_address);
    }
  EXPECT_EQ(posts, Rig::kPages);
  EXPECT_EQ(places.size(), posts);
}

TEST_F(Failover, WithoutAPathLeftItStopsAndTheRestIsNotPosted) {
  begin();
  for (auto* card : rig.cards) card->die();
  rig.run();
  const TransferIdle event = idle();
  EXPECT_FALSE(event.complete);
  EXPECT_EQ(event.dirty_nics.size(), 4u);
  std::uint64_t posts = 0;
  for (auto* card : rig.cards) posts += card->posts();
  EXPECT_LT(posts, Rig::kPages);
}

TEST_F(Failover, HungerDoesNotCountWhatFailed) {
  // The whole plan is granted in two halves; what fails must not look as if it were still to grant.
  begin(Rig::kPages * Rig::kPageBytes / 2);
  rig.cards[1]->die();
  run_for(20ms);
  EXPECT_EQ(rig.take<QuantumDone>().size(), 1u) << "the second half is to be granted";
  EXPECT_EQ(rig.count<TransferIdle>(), 0u) << "there is more to post";
  rig.loop->execute(Grant{1, Rig::kPages * Rig::kPageBytes / 2});
  rig.run();
  EXPECT_EQ(rig.take<QuantumDone>().size(), 0u) << "nothing is left to grant";
  EXPECT_EQ(idle().dirty_nics, std::vector<std::uint16_t>{1});
}

TEST_F(Failover, APostThatIsRefusedForGoodGoesAnotherWayAndLeavesNothingDirty) {
  rig.cards[1]->refuse_posts(true);
  begin();
  rig.run();
  EXPECT_TRUE(idle().complete);
  EXPECT_EQ(rig.take<LinkFailed>().size(), 1u);
  EXPECT_TRUE(rig.arrived(*plan, peer));
}

TEST_F(Failover, AMovedLinkIsLeftAndTheOthersGoOn) {
  begin();
  ASSERT_TRUE(peer.card->reopen_inbound());
  rig.loop->execute(MoveLink{peer.links[0], peer.card->inbound_address(), 1});
  EXPECT_EQ(rig.count<TransferIdle>(), 0u);
  const auto posts = rig.cards[0]->posts();
  rig.step();
  EXPECT_EQ(rig.cards[0]->posts(), posts) << "its leave ended with the old endpoint";
}

TEST_F(Failover, OperationsToAnEndpointThatThePeerClosedSayNothingAgainstTheLink) {
  begin();
  ASSERT_TRUE(peer.card->reopen_inbound());
  for (std::size_t i = 0; i < 4; ++i)
    rig.loop->execute(MoveLink{peer.links[i], peer.card->inbound_address(), 1});
  rig.run();
  EXPECT_EQ(idle().dirty_nics.size(), 4u);
  EXPECT_EQ(rig.count<LinkFailed>(), 0u);
}

TEST_F(Failover, AddedPathsCarryWhatIsLeftAndNotWhatFailed) {
  begin();
  rig.cards[2]->die();
  run_for(1ms);
  rig.cards[2]->revive();
  const auto before = rig.cards[2]->posts();
  ASSERT_EQ(rig.count<TransferIdle>(), 0u);
  rig.loop->execute(AddPaths{1, peer.paths});
  rig.run();
  EXPECT_GT(rig.cards[2]->posts(), before) << "it is used again";
  const TransferIdle event = idle();
  EXPECT_FALSE(event.complete);
  EXPECT_EQ(event.dirty_links, std::vector<LinkId>{peer.links[2]}) << "that is for a fence";
  resume(peer.paths);
  EXPECT_TRUE(idle().complete);
  EXPECT_TRUE(rig.arrived(*plan, peer));
}

TEST_F(Failover, AddedPathsOfAnotherGenerationAreNotTaken) {
  begin();
  rig.cards[2]->die();
  run_for(1ms);
  rig.cards[2]->revive();
  const auto before = rig.cards[2]->posts();
  auto old = peer.paths[2];
  old.generation = 9;
  rig.loop->execute(AddPaths{1, {old}});
  rig.run();
  EXPECT_EQ(rig.cards[2]->posts(), before);
}

// -- standing still ------------------------------------------------------------------------------

TEST_F(Failover, ALinkThatStandsStillIsToldAfterTheStallAndNotBefore) {
  begin();
  rig.cards[2]->stall(true);
  const auto since = rig.network.now();
  while (rig.count<LinkStill>() == 0 && rig.network.now() < since + 2s) {
    rig.step();
    rig.network.advance(100us);
  }
  EXPECT_EQ(rig.take<LinkStill>().at(0).link, peer.links[2]);
  EXPECT_GE(rig.network.now() - since, 500ms);
  EXPECT_LE(rig.network.now() - since, 620ms);
  run_for(1s);
  EXPECT_GE(rig.take<LinkStill>().size(), 1u) << "told again while it lasts";
  EXPECT_EQ(rig.count<TransferIdle>(), 0u) << "nothing is done about it before a CutOff";
}

TEST_F(Failover, ACutOffLinkLosesItsOperationsAndTheTransferEndsWithoutIt) {
  begin();
  rig.cards[2]->stall(true);
  run_for(620ms);
  ASSERT_EQ(rig.take<LinkStill>().size(), 1u);
  const auto out = rig.cards[2]->out();
  ASSERT_GT(out, 0u);
  rig.loop->execute(CutOff{peer.links[2]});
  run_for(110ms);
  const auto failed = rig.take<LinkFailed>();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].link, peer.links[2]);
  EXPECT_NE(failed[0].error.message.find("stands still"), std::string::npos);
  const TransferIdle event = idle();
  EXPECT_EQ(event.dirty_links, std::vector<LinkId>{peer.links[2]});
  EXPECT_EQ(event.completed_bytes, (Rig::kPages - out) * Rig::kPageBytes);
  resume({peer.paths[0], peer.paths[1], peer.paths[3]});
  EXPECT_TRUE(idle().complete);
  EXPECT_TRUE(rig.arrived(*plan, peer));
}

TEST_F(Failover, ACutOffComesToNothingWhenTheLinkMovesOn) {
  begin();
  rig.cards[2]->stall(true);
  run_for(620ms);
  ASSERT_EQ(rig.take<LinkStill>().size(), 1u);
  rig.cards[2]->stall(false);
  rig.loop->execute(CutOff{peer.links[2]});
  rig.run();
  EXPECT_TRUE(idle().complete);
  EXPECT_EQ(rig.count<LinkFailed>(), 0u);
}

TEST_F(Failover, ACutOffCardGoesOnWithItsOtherLinksThatMove) {
  auto& other = rig.add_peer();
  peer.card->stall(true);
  auto first = rig.start(1, peer, plan);
  auto second = rig.start(2, other, plan);
  first.paths.resize(1);
  second.paths.resize(1);
  rig.loop->execute(first);
  rig.loop->execute(Grant{1, kAll});
  rig.loop->execute(second);
  rig.loop->execute(Grant{2, 8 * Rig::kPageBytes});
  run_for(560ms);
  rig.loop->execute(Grant{2, 8 * Rig::kPageBytes});
  run_for(60ms);
  EXPECT_EQ(rig.take<LinkStill>().at(0).link, peer.links[0]);
  rig.loop->execute(CutOff{peer.links[0]});
  run_for(110ms);
  EXPECT_EQ(rig.take<LinkFailed>().size(), 1u);
  EXPECT_EQ(idle().transfer, 1u) << "it had no other way";
  rig.loop->execute(Grant{2, kAll});
  rig.run();
  const auto rest = idle();
  EXPECT_EQ(rest.transfer, 2u);
  EXPECT_TRUE(rest.complete) << "it kept its path";
}

TEST_F(Failover, WithoutAStallSettingNothingIsTold) {
  PollerOptions options = small_windows();
  options.card_stall = 0ms;
  Rig off(42, 2, {}, options);
  auto& its_peer = off.add_peer();
  off.loop->execute(off.start(1, its_peer, plan));
  off.loop->execute(Grant{1, kAll});
  off.cards[0]->stall(true);
  for (int i = 0; i < 3000; ++i) {
    off.step();
    off.network.advance(1ms);
  }
  EXPECT_EQ(off.count<LinkStill>(), 0u);
}

TEST_F(Failover, AfterAPauseOfThePollerItselfLinksStartAfresh) {
  begin();
  for (auto* card : rig.cards) card->stall(true);
  run_for(300ms);
  rig.network.advance(10s);  // this process was stopped
  rig.step();
  run_for(100ms);
  EXPECT_EQ(rig.count<LinkStill>(), 0u);
}

// -- cards that do not open ----------------------------------------------------------------------

TEST_F(Failover, ACardThatDidNotOpenIsTriedAgainAndComesBack) {
  begin();
  rig.cards[1]->fail_reopen(true);
  rig.loop->execute(ReopenOutbound{1});
  rig.run();
  EXPECT_FALSE(rig.take<NicState>().at(0).up);
  EXPECT_EQ(idle().dirty_nics, std::vector<std::uint16_t>{1});
  run_for(5s);
  EXPECT_EQ(rig.count<NicState>(), 0u);
  rig.cards[1]->fail_reopen(false);
  run_for(2100ms);
  const auto back = rig.take<NicState>();
  ASSERT_EQ(back.size(), 1u);
  EXPECT_TRUE(back[0].up);
  const auto before = rig.cards[1]->posts();
  resume({peer.paths[1]});
  EXPECT_TRUE(idle().complete);
  EXPECT_GT(rig.cards[1]->posts(), before);
}

}  // namespace
}  // namespace penstock
