// Outbound: links that come back, restarts of the other node, fences that nobody answers.
#include "tests/actors/device/outbound_fixture.hpp"

namespace penstock {
namespace {

class OutboundFailover : public OutboundTest {};

TEST_F(OutboundFailover, ARunningTransferIsGivenTheLinksThatCameBack) {
  running(admitted(1));
  const std::vector<Peer::PathCard> now_used = {{2, 1, 1, 4}, {3, 0, 0, 5}};
  outbound->links_back(kPeer, "numa0", now_used);
  ASSERT_EQ(pushed<AddPaths>().size(), 1u);
  const AddPaths more = pushed<AddPaths>()[0];
  ASSERT_EQ(more.paths.size(), 2u) << "only what the peer says works now";
  EXPECT_EQ(more.paths[1].link, 3u);
  EXPECT_EQ(more.paths[1].remote_key, 11u);
  EXPECT_EQ(more.paths[1].generation, 5u);
  EXPECT_TRUE(questions<Fence>().empty()) << "what is added was never posted";
}

TEST_F(OutboundFailover, TheFenceNamesWhatCameBackAtItsNewestGeneration) {
  running(admitted(1));
  outbound->links_back(kPeer, "numa0", {{2, 1, 1, 9}, {3, 0, 0, 5}});
  TransferIdle event = failed(1);
  event.dirty_links = {2, 3};
  outbound->idle(event, now);
  const Fence fence = questions<Fence>().at(0);
  ASSERT_EQ(fence.cards.size(), 2u);
  for (const auto& card : fence.cards) EXPECT_EQ(card.generation, card.nic == 1 ? 9u : 5u);
}

TEST_F(OutboundFailover, OnlyTheLinksThatFailedAreFenced) {
  running(admitted(1));
  // Our card 1 also reaches their card 0, over a link that did nothing wrong.
  outbound->links_back(kPeer, "numa0", {{4, 1, 0, 3}});
  outbound->idle(failed(1), now);
  const Fence fence = questions<Fence>().at(0);
  ASSERT_EQ(fence.cards.size(), 1u);
  EXPECT_EQ(fence.cards[0].nic, 1);
}

TEST_F(OutboundFailover, LinksOfAnotherPeerOrDeviceAreNotGiven) {
  running(admitted(1));
  outbound->links_back(kPeer + 1, "numa0", links());
  outbound->links_back(kPeer, "numa1", links());
  EXPECT_TRUE(pushed<AddPaths>().empty());
}

TEST_F(OutboundFailover, WhatIsFencedTakesItsLinksFromTheAnswer) {
  fencing(admitted(1));
  outbound->links_back(kPeer, "numa0", links());
  EXPECT_TRUE(pushed<AddPaths>().empty());
  answer(fenced());
  EXPECT_EQ(pushed<ResumeTransfer>().size(), 1u);
}

// -- a node that restarts ------------------------------------------------------------------------

TEST_F(OutboundFailover, WhatWaitsForANodeRunsOnItsNextIncarnationWhenItNamedNoEpoch) {
  outbound->admit(admitted(1), now);
  outbound->peer_down("b", kPeer, {ErrorCode::kStalePeer, "restarted"}, true, now);
  EXPECT_EQ(state(1), State::kQueued);
  outbound->peer_up("b", kPeer + 1, now);
  EXPECT_EQ(asked.back().peer, kPeer + 1);
  EXPECT_EQ(questions<Open>().at(0).epoch, 0u);
}

TEST_F(OutboundFailover, WhatNamedAnEpochOfTheRunBeforeEndsAsStale) {
  Admitted named = admitted(1);
  named.remote_epoch = 9;
  outbound->admit(std::move(named), now);
  outbound->peer_down("b", kPeer, {ErrorCode::kStalePeer, "restarted"}, true, now);
  outbound->peer_up("b", kPeer + 1, now);
  ASSERT_EQ(questions<Open>().at(0).epoch, 9u) << "the owner is to judge";
  answer(Refused{{ErrorCode::kStaleRegion, "epoch 9 was of the run before"}});
  expect_end(1, Outcome::kFailed, Remote::kQuiet);
  EXPECT_EQ(ended.at(1).error.code, ErrorCode::kStaleRegion);
}

TEST_F(OutboundFailover, WhatWasOpenEndsWithTheRestart) {
  opening(admitted(1));
  outbound->peer_down("b", kPeer, {ErrorCode::kStalePeer, "restarted"}, true, now);
  expect_end(1, Outcome::kFailed, Remote::kQuiet);
  EXPECT_EQ(ended.at(1).error.code, ErrorCode::kStalePeer);
}

// -- fences that nobody answers ------------------------------------------------------------------

class LastFence : public OutboundTest {
 protected:
  /// Cancelled, and the owner does not answer.
  void give_up() {
    running(admitted(1));
    outbound->cancel(1, now);
    outbound->idle(failed(1), now);
    answer(error(ErrorCode::kPeerUnreachable));
    expect_end(1, Outcome::kCancelled, Remote::kUnreachable);
    asked.clear();
  }
};

TEST_F(LastFence, IsToldOnAtALowRateUntilTheLeaseEnds) {
  give_up();
  advance(20s);
  EXPECT_GE(questions<Fence>().size(), 9u);
  EXPECT_LE(questions<Fence>().size(), 10u);
  const Fence fence = questions<Fence>().back();
  EXPECT_TRUE(fence.final);
  EXPECT_EQ(fence.transfer, 1u);
  EXPECT_EQ(fence.cards.size(), 1u);
  advance(60s);
  EXPECT_EQ(outbound->next_tick(), TimePoint::max()) << "the owner has let go by itself";
}

TEST_F(LastFence, EndsWithTheFirstAnswer) {
  give_up();
  advance(2s);
  answer(error(ErrorCode::kPeerUnreachable));
  advance(2s);
  answer(fenced());
  asked.clear();
  advance(60s);
  EXPECT_TRUE(asked.empty());
}

TEST_F(LastFence, EndsWithTheIncarnation) {
  give_up();
  outbound->peer_down("b", kPeer, {ErrorCode::kStalePeer, "restarted"}, true, now);
  EXPECT_EQ(outbound->next_tick(), TimePoint::max());
}

}  // namespace
}  // namespace penstock
