// Outbound on the way to done: opening, counting, finishing, queues, copies.
#include "actors/device/outbound.hpp"

#include "tests/actors/device/outbound_fixture.hpp"

namespace penstock {
namespace {

TEST_F(OutboundTest, ATransferIsOpenedStartedGrantedFinishedAndDone) {
  running(admitted(1));
  const auto open = questions<Open>().at(0);
  EXPECT_EQ(open.chunks, 4u);
  EXPECT_EQ(open.bytes, 400u);
  EXPECT_EQ(open.end, 700u);
  const auto start = pushed<StartTransfer>().at(0);
  EXPECT_EQ(start.immediate, 5u);
  ASSERT_EQ(start.paths.size(), 2u);
  EXPECT_EQ(start.paths[1].remote_key, 22u);
  EXPECT_EQ(pushed<Grant>().at(0).bytes, 400u);
  outbound->idle(complete(1), now);
  EXPECT_EQ(questions<Fin>().size(), 1u);
  expect_end(1, Outcome::kDone, Remote::kQuiet);
  EXPECT_EQ(ended.at(1).bytes, 400u);
}

TEST_F(OutboundTest, TheLeaseOutlivesTheLatestPossibleTerminalEvent) {
  opening(admitted(1));
  const auto lease = Milliseconds(questions<Open>().at(0).lease_ms);
  EXPECT_GE(lease, 60s + options.grace_max + options.fence);
}

TEST_F(OutboundTest, ReadsAndTransfersOfManyChunksAreNotCounted) {
  options.counted_chunks = 3;
  make();
  opening(admitted(1, 4));
  opening(admitted(2, 3));
  Admitted read = admitted(3, 3);
  read.direction = Direction::kRead;
  opening(std::move(read));
  EXPECT_EQ(questions<Open>().at(0).chunks, 0u);
  EXPECT_EQ(questions<Open>().at(1).chunks, 3u);
  EXPECT_EQ(questions<Open>().at(2).chunks, 0u);
}

TEST_F(OutboundTest, WithNotifyTheOwnersWordIsWaitedFor) {
  finishing(admitted(1));
  EXPECT_TRUE(ended.empty());
  answer(FinOk{});
  expect_end(1, Outcome::kDone, Remote::kQuiet);
}

TEST_F(OutboundTest, NothingToMoveIsDoneAtOnceAndWithNotifyAsksTheOwner) {
  outbound->admit(admitted(1, 0), now);
  expect_end(1, Outcome::kDone, Remote::kQuiet);
  ended.clear();
  Admitted a = admitted(2, 0);
  a.notify = "word";
  opening(std::move(a));
  answer(OpenOk{"numa0", {}, 9, 1 << 20, {}});
  answer(FinOk{});
  expect_end(2, Outcome::kDone, Remote::kQuiet);
  EXPECT_TRUE(pushed<StartTransfer>().empty());
}

TEST_F(OutboundTest, ARefusedOpenEndsByTheOwnersNameAndNothingIsPosted) {
  opening(admitted(1));
  answer(Refused{{ErrorCode::kStaleRegion, "another epoch"}});
  expect_end(1, Outcome::kFailed, Remote::kQuiet);
  EXPECT_EQ(ended.at(1).error.code, ErrorCode::kStaleRegion);
}

TEST_F(OutboundTest, AnOpenThatNobodyAnswersIsFollowedByAFence) {
  opening(admitted(1));
  answer(error(ErrorCode::kPeerUnreachable));
  expect_end(1, Outcome::kFailed, Remote::kQuiet);
  ASSERT_EQ(questions<Fence>().size(), 1u);
  EXPECT_EQ(questions<Fence>()[0].device, "");
  EXPECT_TRUE(questions<Fence>()[0].final);
}

TEST_F(OutboundTest, WithoutAWayToTheOwnerItFailsQuietly) {
  opening(admitted(1));
  outbound->answered(last_token(), Answer(OpenOk{"numa0", {}, 9, 1 << 20, {}}),
                     tl::unexpected(Error{ErrorCode::kNotFound, "no card"}), now);
  expect_end(1, Outcome::kFailed, Remote::kQuiet);
}

TEST_F(OutboundTest, APeerThatDoesNotComeUpIsWaitedForOnlySoLong) {
  outbound->admit(admitted(1), now);
  advance(options.connect - 1ms);
  EXPECT_EQ(state(1), State::kQueued);
  advance(1ms);
  expect_end(1, Outcome::kFailed, Remote::kQuiet);
  EXPECT_EQ(ended.at(1).error.code, ErrorCode::kPeerUnreachable);
}

TEST_F(OutboundTest, WaitingBehindOthersIsNotWaitingForThePeer) {
  options.open_per_node = 1;
  make();
  running(admitted(1));
  outbound->admit(admitted(2), now);
  advance(options.connect * 3);
  EXPECT_EQ(state(2), State::kQueued);
  outbound->idle(complete(1), now);
  EXPECT_EQ(state(2), State::kOpening);
}

TEST_F(OutboundTest, WhoWaitsBehindOthersWaitsForThePeerOnceItIsDown) {
  options.open_per_node = 1;
  make();
  running(admitted(1));
  outbound->admit(admitted(2), now);
  advance(options.connect * 3);
  outbound->peer_down("b", kPeer, {ErrorCode::kPeerLeft, "left"}, true, now);
  EXPECT_EQ(state(2), State::kQueued);
  advance(options.connect);
  ASSERT_TRUE(ended.contains(2));
  EXPECT_EQ(ended.at(2).error.code, ErrorCode::kPeerUnreachable);
}

TEST_F(OutboundTest, OnlySoManyAreOpenPerNodeAndLaneAndTheRestFollowInOrder) {
  options.open_per_node = 2;
  make();
  outbound->peer_up("b", kPeer, now);
  for (TransferId id = 1; id <= 5; ++id) outbound->admit(admitted(id), now);
  Admitted urgent = admitted(6);
  urgent.lane = Lane::kUrgent;
  outbound->admit(std::move(urgent), now);
  EXPECT_EQ(state(3), State::kQueued);
  EXPECT_EQ(state(6), State::kOpening) << "urgent ones do not queue behind bulk";
  outbound->cancel(3, now);
  outbound->cancel(1, now);
  EXPECT_EQ(state(4), State::kOpening);
  EXPECT_EQ(state(5), State::kQueued);
}

TEST_F(OutboundTest, AnotherIncarnationTakesWhatWaits) {
  outbound->admit(admitted(1), now);
  outbound->peer_up("b", 78, now);
  EXPECT_EQ(asked.at(0).peer, 78u);
}

TEST_F(OutboundTest, AnswersThatComeLateOrTwiceChangeNothing) {
  opening(admitted(1));
  const auto token = last_token();
  outbound->cancel(1, now);
  answer(OpenOk{"numa0", {}, 9, 1 << 20, {{0, 0, 1}}}, token);
  answer(OpenOk{"numa0", {}, 9, 1 << 20, {{0, 0, 1}}}, 999);
  expect_end(1, Outcome::kCancelled, Remote::kQuiet);
  EXPECT_TRUE(pushed<StartTransfer>().empty());
  outbound->idle(complete(1), now);
  outbound->quantum_done({1, 5});
  outbound->copied(1, 5, 1, now);
  outbound->cancel(1, now);
  EXPECT_EQ(ended.size(), 1u);
}

// -- copies --------------------------------------------------------------------------------------

TEST_F(OutboundTest, BothRegionsHereIsACopyAndNotifiesHere) {
  Admitted a = admitted(1);
  a.node = "a";
  a.copy_target = use("other");
  a.notify = "word";
  a.stream = 9;
  a.part = 3;
  outbound->admit(std::move(a), now);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ((*copies[0].source)->name, "ours");
  EXPECT_EQ((*copies[0].destination)->name, "other");
  copies.clear();
  outbound->copied(1, 400, 4, now);
  expect_end(1, Outcome::kDone, Remote::kQuiet);
  EXPECT_EQ(ended.at(1).path, "local_copy");
  EXPECT_EQ(ended.at(1).stream, 9u);
  EXPECT_EQ(ended.at(1).part, 3u);
  ASSERT_EQ(notified.size(), 1u);
  EXPECT_EQ(notified[0].stream, 9u);
  EXPECT_EQ(notified[0].part, 3u);
}

TEST_F(OutboundTest, ACancelledCopyEndsWhenTheCopierLetsGo) {
  Admitted a = admitted(1);
  a.copy_target = use("other");
  outbound->admit(std::move(a), now);
  outbound->cancel(1, now);
  EXPECT_TRUE(copies.at(0).stop->load());
  EXPECT_TRUE(ended.empty()) << "the copier still writes";
  copies.clear();
  outbound->copied(1, 200, 2, now);
  expect_end(1, Outcome::kCancelled, Remote::kQuiet);
  EXPECT_THAT(ended.at(1).landed, testing::ElementsAre(0, 0, 100, 200, 200, 100));
}

TEST_F(OutboundTest, ACopyPastItsDeadlineExpiresAndOneThatWasFasterIsDone) {
  for (TransferId id : {1, 2}) {
    Admitted a = admitted(id);
    a.copy_target = use("other");
    outbound->admit(std::move(a), now);
  }
  advance(61s);
  EXPECT_TRUE(ended.empty());
  copies.clear();
  outbound->copied(1, 100, 1, now);
  EXPECT_EQ(ended.at(1).state, Outcome::kExpired);
  outbound->copied(2, 400, 4, now);
  EXPECT_EQ(ended.at(2).state, Outcome::kDone);
}

TEST_F(OutboundTest, ReleasingEitherRegionOfACopyStopsIt) {
  for (const char* released : {"ours", "other"}) {
    Admitted a = admitted(1);
    a.copy_target = use("other");
    outbound->admit(std::move(a), now);
    outbound->cancel_region(released, now);
    EXPECT_TRUE(copies.back().stop->load());
    copies.clear();
    outbound->copied(1, 0, 0, now);
    expect_end(1, Outcome::kCancelled, Remote::kQuiet);
    ended.clear();
  }
}

}  // namespace
}  // namespace penstock
