// Outbound when something goes wrong: every state, every reason to stop, what the event says.
#include "tests/actors/device/outbound_fixture.hpp"

namespace penstock {
namespace {

const Error kLeft{ErrorCode::kPeerLeft, "left"};

// -- every state, every reason -------------------------------------------------------------------

enum class Why { kCancel, kDeadline, kGone, kSilent, kRevoked, kEvicted };

class StopTest : public OutboundTest {
 protected:
  void stop(Why why) {
    switch (why) {
      case Why::kCancel:
        return outbound->cancel(1, now);
      case Why::kDeadline:
        return advance(61s);
      case Why::kGone:
        return outbound->peer_down("b", kPeer, kLeft, true, now);
      case Why::kSilent:
        return outbound->peer_down("b", kPeer, kLeft, false, now);
      case Why::kRevoked:
        return outbound->revoked(kPeer, "theirs", 9, now);
      case Why::kEvicted:
        return outbound->cancel_region("ours", now);
    }
  }
  static Outcome outcome(Why why) {
    if (why == Why::kDeadline) return Outcome::kExpired;
    return why == Why::kCancel || why == Why::kEvicted ? Outcome::kCancelled : Outcome::kFailed;
  }
  static constexpr Why kAll[] = {Why::kCancel, Why::kDeadline, Why::kGone,
                                 Why::kSilent, Why::kRevoked,  Why::kEvicted};
  void renew() {
    commands.clear();
    asked.clear();
    ended.clear();
    make();
  }
};

TEST_F(StopTest, WhatIsBeingOpenedEndsAtOnceAndQuiet) {
  for (Why why : kAll) {
    SCOPED_TRACE(static_cast<int>(why));
    renew();
    opening(admitted(1));
    stop(why);
    expect_end(1, outcome(why), Remote::kQuiet, why == Why::kSilent);
    ASSERT_EQ(questions<Fence>().size(), 1u);
    EXPECT_TRUE(questions<Fence>()[0].device.empty());
  }
}

TEST_F(StopTest, APeerThatFellSilentHearsOfAnOpenThatItMayFindLater) {
  for (Why why : {Why::kSilent, Why::kGone, Why::kCancel}) {
    SCOPED_TRACE(static_cast<int>(why));
    renew();
    opening(admitted(1));
    stop(why);
    const auto at_once = questions<Fence>().size();
    advance(5s);
    if (why != Why::kSilent) {
      EXPECT_EQ(questions<Fence>().size(), at_once);
      continue;
    }
    ASSERT_GT(questions<Fence>().size(), at_once);
    EXPECT_TRUE(questions<Fence>().back().final);
    answer(fenced());
    const auto answered = questions<Fence>().size();
    advance(5s);
    EXPECT_EQ(questions<Fence>().size(), answered) << "it has said that it knows";
  }
}

TEST_F(StopTest, WhatRunsIsStoppedThenFencedThenEnds) {
  for (Why why : kAll) {
    SCOPED_TRACE(static_cast<int>(why));
    renew();
    running(admitted(1));
    stop(why);
    ASSERT_EQ(state(1), State::kStopping);
    EXPECT_EQ(pushed<StopTransfer>().size(), 1u);
    EXPECT_TRUE(ended.empty()) << "something of it is still posted";
    outbound->idle(failed(1), now);
    if (why != Why::kGone) {
      ASSERT_EQ(state(1), State::kFencing);
      const Fence fence = questions<Fence>().at(0);
      EXPECT_TRUE(fence.final);
      ASSERT_EQ(fence.cards.size(), 1u);
      EXPECT_EQ(fence.cards[0].nic, 1);
      EXPECT_EQ(fence.cards[0].generation, 4u);
      answer(fenced());
    }
    expect_end(1, outcome(why), Remote::kQuiet);
    EXPECT_THAT(ended.at(1).landed, testing::ElementsAre(0, 0, 100));
  }
}

TEST_F(StopTest, AFenceThatNobodyAnswersEndsAsUnreachable) {
  for (Why why : {Why::kCancel, Why::kDeadline, Why::kSilent, Why::kRevoked, Why::kEvicted}) {
    SCOPED_TRACE(static_cast<int>(why));
    renew();
    running(admitted(1));
    stop(why);
    outbound->idle(failed(1), now);
    answer(error(ErrorCode::kPeerUnreachable));
    expect_end(1, outcome(why), Remote::kUnreachable);
  }
}

TEST_F(StopTest, TheOwnerHadCountedToTheEndSoItIsDone) {
  for (Why why : {Why::kCancel, Why::kDeadline, Why::kRevoked, Why::kEvicted}) {
    renew();
    running(admitted(1));
    stop(why);
    outbound->idle(failed(1), now);
    answer(AlreadyDone{});
    expect_end(1, Outcome::kDone, Remote::kQuiet);
    EXPECT_EQ(ended.at(1).bytes, 400u);
  }
}

TEST_F(StopTest, WhatCompletesWhileItIsStoppedIsDone) {
  for (Why why : kAll) {
    renew();
    running(admitted(1));
    stop(why);
    outbound->idle(complete(1), now);
    expect_end(1, Outcome::kDone, Remote::kQuiet);
  }
}

TEST_F(StopTest, StoppedWhileFencedItIsFencedForGood) {
  for (Why why : {Why::kCancel, Why::kRevoked, Why::kEvicted}) {
    SCOPED_TRACE(static_cast<int>(why));
    renew();
    fencing(admitted(1));
    EXPECT_FALSE(questions<Fence>().at(0).final);
    stop(why);
    EXPECT_TRUE(ended.empty());
    ASSERT_EQ(questions<Fence>().size(), 2u) << "at once, not after the first is answered";
    EXPECT_TRUE(questions<Fence>()[1].final);
    EXPECT_EQ(questions<Fence>()[1].cards.size(), 1u);
    answer(fenced());
    expect_end(1, outcome(why), Remote::kQuiet);
    EXPECT_TRUE(pushed<ResumeTransfer>().empty());
  }
}

TEST_F(StopTest, APeerThatEndsWhileItFencesLeavesNobodyWaiting) {
  for (bool gone : {true, false}) {
    renew();
    fencing(admitted(1));
    const auto token = last_token();
    outbound->peer_down("b", kPeer, kLeft, gone, now);
    expect_end(1, Outcome::kFailed, gone ? Remote::kQuiet : Remote::kUnreachable);
    answer(error(ErrorCode::kPeerLeft), token);
  }
}

TEST_F(StopTest, APeerThatEndsBeforeItConfirmsFailsWhatFinishes) {
  for (bool gone : {true, false}) {
    renew();
    finishing(admitted(1));
    outbound->peer_down("b", kPeer, kLeft, gone, now);
    expect_end(1, Outcome::kFailed, gone ? Remote::kQuiet : Remote::kUnreachable);
    EXPECT_THAT(ended.at(1).error.message, HasSubstr("every byte was delivered"));
  }
}

TEST_F(StopTest, WhatFinishesIsNotStoppedAnyMore) {
  for (Why why : {Why::kCancel, Why::kDeadline, Why::kRevoked, Why::kEvicted}) {
    renew();
    finishing(admitted(1));
    stop(why);
    ASSERT_EQ(state(1), State::kFinishing);
    answer(FinOk{});
    expect_end(1, Outcome::kDone, Remote::kQuiet);
  }
}

TEST_F(StopTest, BackingOffItIsFencedForGood) {
  for (Why why : {Why::kCancel, Why::kRevoked, Why::kEvicted}) {
    renew();
    backing_off(admitted(1));
    stop(why);
    EXPECT_TRUE(questions<Fence>().back().final);
    answer(fenced());
    expect_end(1, outcome(why), Remote::kQuiet);
  }
  renew();
  backing_off(admitted(1));
  stop(Why::kGone);
  expect_end(1, Outcome::kFailed, Remote::kQuiet);
  renew();
  backing_off(admitted(1));
  stop(Why::kSilent);
  expect_end(1, Outcome::kFailed, Remote::kUnreachable);
}

TEST_F(StopTest, TheFirstReasonStands) {
  running(admitted(1));
  outbound->cancel(1, now);
  outbound->revoked(kPeer, "theirs", 9, now);
  outbound->idle(stopped(1), now);
  outbound->peer_down("b", kPeer, kLeft, true, now);
  expect_end(1, Outcome::kCancelled, Remote::kQuiet);
}

TEST_F(StopTest, NothingIsGrantedAfterAStopAndTheOthersGetItsQuanta) {
  options.scheduler = {100, 2};
  make();
  running(admitted(1, 40));
  opening(admitted(2, 40));
  answer(OpenOk{"numa0", 6, 9, 1 << 20, {{0, 0, 11}}});
  ASSERT_EQ(pushed<Grant>().size(), 2u);
  outbound->cancel(1, now);
  EXPECT_EQ(pushed<Grant>().size(), 4u) << "its quanta go to the other at once";
  outbound->quantum_done({1, 100});
  outbound->quantum_done({2, 100});
  for (std::size_t i = 2; i < pushed<Grant>().size(); ++i)
    EXPECT_EQ(pushed<Grant>()[i].transfer, 2u);
}

TEST_F(StopTest, OperationsThatNeverCompleteLoseTheirEndpoint) {
  stopping(admitted(1));
  advance(options.grace_max);
  std::set<std::uint16_t> nics;
  for (const auto& each : pushed<ReopenOutbound>()) nics.insert(each.nic);
  EXPECT_EQ(nics, (std::set<std::uint16_t>{0, 1}));
  EXPECT_EQ(state(1), State::kStopping);
  outbound->idle(failed(1), now);
  answer(fenced());
  expect_end(1, Outcome::kCancelled, Remote::kQuiet);
}

TEST_F(StopTest, ARevokeOfAnotherEpochPeerOrRegionIsNotMeant) {
  running(admitted(1));
  outbound->revoked(kPeer, "theirs", 8, now);
  outbound->revoked(kPeer + 1, "theirs", 9, now);
  outbound->revoked(kPeer, "others", 9, now);
  outbound->cancel_region("theirs", now);
  outbound->peer_down("b", kPeer + 1, kLeft, true, now);
  EXPECT_EQ(state(1), State::kRunning);
}

// -- failures ------------------------------------------------------------------------------------

TEST_F(OutboundTest, AFailureIsFencedAndGoesOn) {
  fencing(admitted(1));
  const Fence fence = questions<Fence>().at(0);
  EXPECT_FALSE(fence.final);
  ASSERT_EQ(fence.cards.size(), 1u) << "only the card that failed";
  EXPECT_TRUE(pushed<ResumeTransfer>().empty()) << "nothing is posted again before FENCED";
  answer(fenced());
  ASSERT_EQ(pushed<ResumeTransfer>().size(), 1u);
  EXPECT_EQ(pushed<Grant>().back().bytes, 300u);
  outbound->idle(complete(1), now);
  EXPECT_TRUE(ended.empty()) << "its count cannot be full: the owner has to confirm";
  answer(FinOk{});
  expect_end(1, Outcome::kDone, Remote::kQuiet);
}

TEST_F(OutboundTest, AnOwnerThatHadCountedItAllEndsAFailureAsDone) {
  fencing(admitted(1));
  answer(AlreadyDone{});
  expect_end(1, Outcome::kDone, Remote::kQuiet);
  EXPECT_TRUE(pushed<ResumeTransfer>().empty());
}

TEST_F(OutboundTest, FailuresWithoutProgressEndAfterSoManyTries) {
  running(admitted(1));
  std::uint32_t tries = 0;
  for (; ended.empty() && tries < 50; ++tries) {
    outbound->idle(failed(1), now);
    answer(fenced());
    if (ended.empty()) advance(2s);
  }
  EXPECT_EQ(tries, options.retries + 1);
  expect_end(1, Outcome::kFailed, Remote::kQuiet);
  EXPECT_THAT(ended.at(1).error.message, HasSubstr("broken pipe"));
}

TEST_F(OutboundTest, FailuresWithProgressInBetweenDoNotAddUp) {
  running(admitted(1));
  for (std::uint64_t i = 1; i <= 30; ++i) {
    outbound->idle(failed(1, i), now);
    answer(fenced());
    ASSERT_EQ(state(1), State::kRunning);
  }
}

TEST_F(OutboundTest, FailuresWithoutProgressBackOffLonger) {
  backing_off(admitted(1));
  const auto first = outbound->next_tick() - now;
  advance(first);
  ASSERT_EQ(state(1), State::kRunning);
  outbound->idle(failed(1), now);
  answer(fenced());
  EXPECT_GT(outbound->next_tick() - now, first);
}

TEST_F(OutboundTest, AnOwnerThatDoesNotLetItGoOnStillTellsWhetherItIsQuiet) {
  fencing(admitted(1));
  answer(Refused{{ErrorCode::kDeadlineExceeded, "the lease ended"}});
  ASSERT_EQ(questions<Fence>().size(), 2u);
  EXPECT_TRUE(questions<Fence>()[1].final);
  answer(fenced());
  expect_end(1, Outcome::kFailed, Remote::kQuiet);
  EXPECT_THAT(ended.at(1).error.message, HasSubstr("the lease ended"));
}

TEST_F(OutboundTest, AnotherIncarnationAnsweringMeansThatThePagesAreGone) {
  fencing(admitted(1));
  answer(error(ErrorCode::kStalePeer));
  expect_end(1, Outcome::kFailed, Remote::kQuiet);
}

TEST_F(OutboundTest, AFenceThatIsAnsweredAfterTheDeadlineDoesNotGoOn) {
  fencing(admitted(1));
  advance(61s);
  answer(fenced());
  EXPECT_TRUE(pushed<ResumeTransfer>().empty());
  answer(fenced());
  expect_end(1, Outcome::kExpired, Remote::kQuiet);
}

TEST_F(OutboundTest, ADeadlineThatPassesSoonAfterAFenceWasAskedBringsTheFinalOne) {
  running(admitted(1));
  advance(60s - 1ms);
  outbound->idle(failed(1), now);
  ASSERT_EQ(questions<Fence>().size(), 1u);
  advance(1ms);
  ASSERT_EQ(questions<Fence>().size(), 2u) << "its time to end runs from the deadline";
  EXPECT_TRUE(questions<Fence>()[1].final);
  EXPECT_EQ(asked.back().deadline, now + options.fence);
  answer(fenced());
  expect_end(1, Outcome::kExpired, Remote::kQuiet);
}

TEST_F(OutboundTest, WithoutALinkLeftItIsFencedForGood) {
  fencing(admitted(1));
  outbound->answered(last_token(), Answer(fenced()), std::vector<Peer::PathCard>(), now);
  EXPECT_TRUE(questions<Fence>().back().final);
  answer(fenced());
  expect_end(1, Outcome::kFailed, Remote::kQuiet);
}

TEST_F(OutboundTest, WithoutTheOwnersConfirmationItFails) {
  finishing(admitted(1));
  answer(Refused{{ErrorCode::kCancelled, "not open here"}});
  expect_end(1, Outcome::kFailed, Remote::kUnreachable);
}

}  // namespace
}  // namespace penstock
