// Streams on a clock of their own, with parts that end when the test says so.
#include "actors/node/streams.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace penstock {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;
using State = TransferResult::State;

constexpr TransferId kStream = 100;

class AStream : public testing::Test {
 protected:
  void open(TransferId id = kStream) {
    TransferSpec spec;
    spec.region = "kv";
    spec.targets = {{"b", "pool", 7}};
    spec.lane = Lane::kUrgent;
    spec.weight = 5;
    spec.key = "request-1";
    spec.notify = "request-1";
    streams.open(id, {spec, "b", "me", now - 1ms, now, now + 10s});
  }
  Result<Streams::Next> ask(std::uint32_t part, std::string notify = "") {
    return streams.next({kStream, part, Ranges{}, std::move(notify), "start", "record"});
  }
  /// Appends the next part; it runs as transfer 200, 201 ...
  TransferId append() {
    const auto next = ask(appended);
    EXPECT_TRUE(next) << next.error().message;
    const TransferId id = 200 + appended++;
    streams.appended(kStream, id, 1000);
    return id;
  }
  Result<void> close(std::uint32_t parts) {
    auto can = streams.can_close({kStream, parts});
    streams.close({kStream, parts}, now);
    return can;
  }
  static TransferResult ended_part(std::uint32_t part, State state) {
    TransferResult result;
    result.id = 200 + part;
    result.stream = kStream;
    result.part = part;
    result.state = state;
    result.bytes = state == State::kDone ? 1000 : 10;
    result.writes = 2;
    result.path = "direct";
    result.remote_epoch = 7;
    result.cards = {{"eth0", CardShare{result.bytes, 2}}};
    if (state != State::kDone) result.error = {ErrorCode::kPeerDead, "b is dead"};
    return result;
  }
  void end(std::uint32_t part, State state = State::kDone) {
    streams.part_ended(ended_part(part, state), now);
  }
  const TransferResult& the_end() {
    EXPECT_THAT(ends, SizeIs(1));
    return ends.back();
  }

  TimePoint now{1h};
  std::uint32_t appended = 0;
  std::vector<TransferId> cancelled;
  std::vector<TransferResult> ends;
  bool cancel_at_once = false;  // the part ends before cancel() returns
  bool remembered = true;
  Streams streams{{.cancel =
                       [this](TransferId part) {
                         cancelled.push_back(part);
                         if (cancel_at_once)
                           end(static_cast<std::uint32_t>(part - 200), State::kCancelled);
                       },
                   .ended = [this](TransferResult result) { ends.push_back(std::move(result)); },
                   .remembered = [this](TransferId) { return remembered; }}};
};

TEST_F(AStream, PartsAreTransfersUnderItsTerms) {
  open();
  const auto part = ask(0, "layer 0");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->repeated, 0u);
  EXPECT_EQ(part->deadline, now + 10s);
  EXPECT_EQ(part->spec.region, "kv");
  EXPECT_EQ(part->spec.targets.front().epoch, 7u);
  EXPECT_EQ(part->spec.weight, 5u);
  EXPECT_EQ(part->spec.lane, Lane::kUrgent);
  EXPECT_EQ(part->spec.notify, "layer 0");
  EXPECT_EQ(part->spec.start_after, "start");
  EXPECT_EQ(part->spec.record_event, "record");
  EXPECT_EQ(part->spec.key, "") << "the key is the stream's: a part with it would be the stream";
  EXPECT_EQ(ask(0)->spec.notify, "request-1") << "without one of its own, the stream's";
}

TEST_F(AStream, EndsOnceWhenItIsClosedAndTheLastPartHasEnded) {
  open();
  append();
  append();
  end(1);
  now += 5ms;
  ASSERT_TRUE(close(2));
  EXPECT_THAT(ends, IsEmpty()) << "part 0 is under way";
  EXPECT_EQ(streams.size(), 1u);
  now += 5ms;
  end(0);
  const auto& result = the_end();
  EXPECT_EQ(result.id, kStream);
  EXPECT_EQ(result.state, State::kDone);
  EXPECT_EQ(result.node, "b");
  EXPECT_EQ(result.remote_region, "pool");
  EXPECT_EQ(result.lane, "urgent");
  EXPECT_EQ(result.bytes, 2000u);
  EXPECT_EQ(result.writes, 4u);
  EXPECT_EQ(result.elapsed_us, 10'000u);
  EXPECT_EQ(result.path, "direct");
  EXPECT_EQ(result.parts->appended, 2u);
  EXPECT_EQ(result.parts->done, 2u);
  ASSERT_THAT(result.cards, SizeIs(1));
  EXPECT_EQ(result.cards.front().second.bytes, 2000u);
  EXPECT_EQ(result.stages.length(1, now), 5ms) << "open";
  EXPECT_EQ(result.stages.length(2, now), 5ms) << "closing";
  EXPECT_EQ(streams.size(), 0u);
  EXPECT_FALSE(streams.cancel(kStream, now));
  end(0);
  EXPECT_THAT(ends, SizeIs(1));
}

TEST_F(AStream, StaysOpenWhileNothingIsUnderWay) {
  open();
  append();
  end(0);
  EXPECT_THAT(ends, IsEmpty());
  append();
  ASSERT_TRUE(close(2));
  end(1);
  EXPECT_EQ(the_end().state, State::kDone);
}

TEST_F(AStream, WithoutPartsIsDoneWhenItIsClosed) {
  open();
  ASSERT_TRUE(close(0));
  EXPECT_EQ(the_end().state, State::kDone);
  EXPECT_EQ(the_end().parts->appended, 0u);
}

TEST_F(AStream, APartThatFailsEndsItAndTheOthersAreCancelled) {
  open();
  append();
  append();
  append();
  end(0);
  end(1, State::kFailed);
  EXPECT_THAT(cancelled, ElementsAre(202));
  EXPECT_THAT(ends, IsEmpty()) << "not quiet yet";
  const auto late = ask(3);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kPeerDead);
  EXPECT_THAT(late.error().message, HasSubstr("part 1 (transfer 201) ended as failed: b is dead"));
  EXPECT_EQ(close(3).error().code, ErrorCode::kPeerDead);
  end(2, State::kCancelled);
  EXPECT_EQ(the_end().state, State::kFailed);
  EXPECT_EQ(the_end().error.code, ErrorCode::kPeerDead);
  EXPECT_EQ(the_end().parts->appended, 3u);
  EXPECT_EQ(the_end().parts->done, 1u);
}

TEST_F(AStream, PagesThatMayNotBeQuietAreSaidSo) {
  open();
  append();
  append();
  auto lost = ended_part(0, State::kFailed);
  lost.remote = TransferResult::Remote::kUnreachable;
  streams.part_ended(lost, now);
  end(1);
  EXPECT_EQ(the_end().remote, TransferResult::Remote::kUnreachable);
}

TEST_F(AStream, ACancelCancelsItsParts) {
  open();
  append();
  append();
  EXPECT_TRUE(streams.cancel(kStream, now));
  EXPECT_THAT(cancelled, UnorderedElementsAre(200, 201));
  EXPECT_THAT(ends, IsEmpty());
  end(0, State::kCancelled);
  end(1);
  EXPECT_EQ(the_end().state, State::kCancelled);
  EXPECT_EQ(the_end().error.message, "the stream was cancelled");
  EXPECT_EQ(the_end().parts->done, 1u);
}

TEST_F(AStream, PartsMayEndWhileTheyAreBeingCancelled) {
  cancel_at_once = true;
  open();
  append();
  append();
  append();
  EXPECT_TRUE(streams.cancel(kStream, now));
  EXPECT_EQ(the_end().state, State::kCancelled);
  EXPECT_EQ(streams.size(), 0u);
}

TEST_F(AStream, WhatWasFasterThanTheCancelIsDone) {
  open();
  append();
  ASSERT_TRUE(close(1));
  EXPECT_TRUE(streams.cancel(kStream, now));
  end(0);
  EXPECT_EQ(the_end().state, State::kDone);
  EXPECT_EQ(the_end().error.message, "");
}

TEST_F(AStream, ThatNobodyClosesEndsAtItsDeadline) {
  open();
  append();
  end(0);
  EXPECT_EQ(streams.next_deadline(), now + 10s);
  streams.expire(now + 10s - 1ms);
  EXPECT_THAT(ends, IsEmpty());
  now += 10s;
  streams.expire(now);
  EXPECT_EQ(the_end().state, State::kExpired);
  EXPECT_EQ(the_end().error.code, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(the_end().error.message, HasSubstr("10000 ms"));
  EXPECT_EQ(streams.next_deadline(), TimePoint::max());
}

TEST_F(AStream, AtTheDeadlineItWaitsForTheEndsOfItsParts) {
  open();
  append();
  streams.expire(now + 10s);
  EXPECT_THAT(cancelled, IsEmpty()) << "they have the same deadline: theirs says expired";
  EXPECT_THAT(ends, IsEmpty());
  EXPECT_EQ(streams.size(), 1u);
  EXPECT_FALSE(ask(1));
  end(0, State::kExpired);
  EXPECT_EQ(the_end().state, State::kExpired);
}

TEST_F(AStream, APartThatWasAskedForTwiceIsThereOnce) {
  open();
  append();
  append();
  EXPECT_EQ(ask(0)->repeated, 200u);
  EXPECT_EQ(ask(1)->repeated, 201u);
  ASSERT_TRUE(close(2));
  ASSERT_TRUE(close(2)) << "its answer may have been lost";
  EXPECT_EQ(ask(1)->repeated, 201u);
  end(0);
  end(1);
  EXPECT_EQ(the_end().state, State::kDone);
  EXPECT_EQ(ask(0)->repeated, 200u) << "also after the end";
  EXPECT_TRUE(close(2));
  EXPECT_EQ(ask(2).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(AStream, ThatLacksAPartIsNeverDone) {
  open();
  append();
  const auto gap = ask(2);
  ASSERT_FALSE(gap);
  EXPECT_THAT(gap.error().message, HasSubstr("part 1 is missing"));
  streams.refused(kStream, 2, gap.error(), now);
  EXPECT_THAT(cancelled, ElementsAre(200));
  end(0);
  EXPECT_EQ(the_end().state, State::kFailed);
  EXPECT_THAT(the_end().error.message, HasSubstr("part 2 was refused: part 2 of stream 100"));
}

TEST_F(AStream, ClosedWithAnotherCountFails) {
  open();
  append();
  EXPECT_THAT(close(2).error().message, HasSubstr("has 1 parts, and was to be closed with 2"));
  end(0);
  EXPECT_EQ(the_end().state, State::kFailed);
}

TEST_F(AStream, AppendedToAfterItsCloseGoesOn) {
  open();
  append();
  ASSERT_TRUE(close(1));
  const auto late = ask(1);
  ASSERT_FALSE(late);
  streams.refused(kStream, 1, late.error(), now);
  end(0);
  EXPECT_EQ(the_end().state, State::kDone) << "all that it was to have is there";
}

TEST_F(AStream, IsReportedWhileItLasts) {
  open();
  append();
  append();
  end(0);
  now += 2ms;
  const auto report = streams.report(kStream, 300, now);
  EXPECT_EQ(report.at("state"), "open");
  EXPECT_EQ(report.at("bytes"), 1300u);
  EXPECT_EQ(report.at("total_bytes"), 2000u);
  EXPECT_EQ(report.at("parts"), 2u);
  EXPECT_EQ(report.at("parts_done"), 1u);
  EXPECT_EQ(report.at("elapsed_us"), 2000u);
  EXPECT_TRUE(streams.unfinished(kStream, now));
  EXPECT_THAT(streams.newest(10), ElementsAre(kStream));
  streams.cancel(kStream, now);
  EXPECT_EQ(streams.report(kStream, 0, now).at("state"), "stopping");
  end(1, State::kCancelled);
  EXPECT_TRUE(streams.report(kStream, 0, now).is_null());
  EXPECT_FALSE(streams.unfinished(kStream, now));
  EXPECT_THAT(streams.newest(10), IsEmpty());
}

TEST_F(AStream, IsForgottenWithItsTransfer) {
  open();
  ASSERT_TRUE(close(0));
  open(kStream + 1);
  EXPECT_TRUE(close(0)) << "still remembered";
  remembered = false;
  open(kStream + 2);
  EXPECT_EQ(close(0).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ask(0).error().code, ErrorCode::kNotFound);
}

TEST_F(AStream, CountsAsItsClientsUntilItHasEnded) {
  open();
  open(kStream + 1);
  EXPECT_EQ(streams.open_of("me"), 2u);
  EXPECT_EQ(streams.open_of("you"), 0u);
  append();
  EXPECT_TRUE(streams.cancel(kStream, now));
  EXPECT_EQ(streams.open_of("me"), 2u) << "a part is under way";
  end(0, State::kCancelled);
  EXPECT_TRUE(streams.cancel(kStream + 1, now));
  EXPECT_EQ(streams.open_of("me"), 0u);
}

TEST_F(AStream, HasAtMostSoManyParts) {
  open();
  for (std::uint32_t i = 0; i < Streams::kMostParts; ++i) streams.appended(kStream, 1000 + i, 1);
  EXPECT_EQ(ask(Streams::kMostParts).error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace penstock
