#include "actors/node/shadows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Outcome = TransferResult::State;
using Remote = TransferResult::Remote;

class AShadow : public testing::Test {
 protected:
  struct Asked {
    std::string node;
    std::uint64_t token;
    Question question;
    TimePoint deadline;
  };

  AShadow()
      : shadows({},
                {[this](const std::string& node, std::uint64_t token, Question question,
                        TimePoint deadline) {
                   asked.push_back({node, token, std::move(question), deadline});
                 },
                 [this](const std::string& client, const std::string& what) {
                   audited.push_back(client + ": " + what);
                 },
                 [this](TransferResult result) { ended.push_back(std::move(result)); }},
                live) {}

  void start(TransferId id, std::size_t bytes = 100, const std::string& on = "b",
             Milliseconds deadline = 10s) {
    Shadows::Asked one;
    one.id = id;
    one.on = on;
    one.node = "c";
    one.region = "kv";
    one.remote_region = "in";
    one.client = "trainer";
    std::vector<std::byte> request(bytes);
    for (std::size_t i = 0; i < bytes; ++i) request[i] = static_cast<std::byte>(i % 251);
    one.request = std::make_shared<const std::vector<std::byte>>(std::move(request));
    one.received = one.accepted = now;
    one.deadline = now + deadline;
    shadows.start(std::move(one), now);
  }
  template <class T>
  const T& question(std::size_t place) const {
    return std::get<T>(asked.at(place).question);
  }
  void answer(std::size_t place, Result<Answer> said) {
    shadows.answered(asked.at(place).token, said, now);
  }
  /// Started and accepted as 77 there.
  void run(TransferId id) {
    start(id);
    answer(asked.size() - 1, Delegated{77});
  }
  void over(TransferId id, Outcome state, Error error = {}) {
    DelegatedEnded end;
    end.transfer = id;
    end.executed_as = 77;
    end.state = static_cast<std::uint8_t>(state);
    end.bytes = 4096;
    end.writes = 2;
    end.path = "direct";
    end.cards = {{"eth0", 4096, 2}};
    end.error = std::move(error);
    shadows.over("b", end, now);
  }
  void pass(Clock::duration time) {
    now += time;
    shadows.tick(now);
  }

  TimePoint now{1h};
  std::vector<Asked> asked;
  std::vector<std::string> audited;
  std::vector<TransferResult> ended;
  std::shared_ptr<LiveShadows> live = std::make_shared<LiveShadows>();
  Shadows shadows;
};

TEST_F(AShadow, IsLiveUntilItsEndIsTold) {
  start(5);
  start(6);
  EXPECT_TRUE(live->contains(5));
  shadows.executor_lost("b", {ErrorCode::kPeerDead, "silent"}, now);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_FALSE(live->contains(5));
  EXPECT_FALSE(live->contains(6));
}

TEST_F(AShadow, EndsOnceAsItsExecutorSays) {
  run(5);
  const Delegate& part = question<Delegate>(0);
  EXPECT_EQ(asked[0].node, "b");
  EXPECT_EQ(part.transfer, 5u);
  EXPECT_EQ(part.client, "trainer");
  EXPECT_FALSE(part.admin);
  EXPECT_EQ(part.deadline_ms, 10000u);
  EXPECT_EQ(part.total, 100u);
  pass(3ms);
  over(5, Outcome::kDone);
  over(5, Outcome::kFailed);
  pass(1h);
  ASSERT_THAT(ended, SizeIs(1));
  const TransferResult& result = ended[0];
  EXPECT_EQ(result.id, 5u);
  EXPECT_EQ(result.state, Outcome::kDone);
  EXPECT_EQ(result.remote, Remote::kQuiet);
  EXPECT_EQ(result.node, "c");
  EXPECT_EQ(result.region, "kv");
  EXPECT_EQ(result.bytes, 4096u);
  EXPECT_EQ(result.writes, 2u);
  EXPECT_EQ(result.path, "direct");
  EXPECT_EQ(result.cards.at(0).first, "eth0");
  EXPECT_EQ(result.elapsed_us, 3000u);
  EXPECT_EQ(result.on, "b");
  EXPECT_EQ(result.on_as, 77u);
  EXPECT_EQ(shadows.size(), 0u);
}

TEST_F(AShadow, OfALongListIsHandedOverInPartsThatFollowOneAnother) {
  const std::size_t total = 2 * kMaxInlineBytes + 10;
  start(5, total);
  std::vector<std::byte> arrived;
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_THAT(asked, SizeIs(i + 1));
    const Delegate& part = question<Delegate>(i);
    EXPECT_EQ(part.offset, arrived.size());
    EXPECT_EQ(part.total, total);
    Message message;
    message.body = Question(part);
    EXPECT_TRUE(encode(message));
    arrived.insert(arrived.end(), part.part.bytes.begin(), part.part.bytes.end());
    now += 1s;
    answer(i, Delegated{i == 2 ? 77u : 0u});
  }
  EXPECT_EQ(question<Delegate>(2).deadline_ms, 8000u) << "what is left, not what was asked for";
  EXPECT_EQ(arrived.size(), total);
  EXPECT_EQ(arrived.back(), static_cast<std::byte>((total - 1) % 251));
  EXPECT_THAT(asked, SizeIs(3));
  EXPECT_TRUE(ended.empty());
}

TEST_F(AShadow, ThatIsRefusedFailsWithTheExecutorsWordsAndNothingRan) {
  start(5);
  answer(0, fail(ErrorCode::kDenied, "node 'b' refused: region 'kv' is not for node 'a' (allow)"));
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].state, Outcome::kFailed);
  EXPECT_EQ(ended[0].error.code, ErrorCode::kDenied);
  EXPECT_THAT(ended[0].error.message, HasSubstr("node 'b' refused: region 'kv' is not for"));
  EXPECT_EQ(ended[0].remote, Remote::kQuiet);
  EXPECT_THAT(audited, ElementsAre(HasSubstr("trainer: node 'b' refused")));
}

TEST_F(AShadow, WhoseExecutorIsGoneFailsAsThatAndLaterWordsAreNotHeard) {
  run(5);
  start(6);
  start(7, 100, "d");
  shadows.executor_lost("b", {ErrorCode::kStalePeer, "node 'b' restarted"}, now);
  over(5, Outcome::kDone);
  answer(1, Delegated{78});
  ASSERT_THAT(ended, SizeIs(2));
  for (const auto& result : ended) {
    EXPECT_EQ(result.state, Outcome::kFailed);
    EXPECT_EQ(result.error.code, ErrorCode::kExecutorDied);
    EXPECT_THAT(result.error.message, HasSubstr("node 'b' restarted"));
    EXPECT_EQ(result.remote, Remote::kUnreachable);
  }
  EXPECT_EQ(shadows.size(), 1u) << "that of another executor goes on";
}

TEST_F(AShadow, WhoseExecutorSaysNothingExpiresAStatedTimeAfterItsDeadline) {
  run(5);
  const Shadows::Options options;
  while (ended.empty() && now < TimePoint(2h)) {
    now = shadows.next_tick();
    shadows.tick(now);
  }
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].state, Outcome::kExpired);
  EXPECT_EQ(ended[0].error.code, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(ended[0].error.message, HasSubstr("node 'b' says nothing more"));
  EXPECT_EQ(ended[0].remote, Remote::kUnreachable);
  EXPECT_EQ(now - TimePoint(1h), 10s + options.late + options.stopping + options.margin);
}

TEST_F(AShadow, ThatIsLateIsStoppedAtItsExecutorAndHasExpired) {
  run(5);
  pass(10s + 249ms);
  EXPECT_THAT(asked, SizeIs(2)) << "the delegation and a look";
  pass(1ms);
  ASSERT_THAT(asked, SizeIs(3));
  EXPECT_EQ(question<StopDelegated>(2).transfer, 5u);
  answer(2, StopSeen{true});
  over(5, Outcome::kCancelled, {ErrorCode::kCancelled, "cancelled"});
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].state, Outcome::kExpired);
  EXPECT_EQ(ended[0].error.code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(ended[0].remote, Remote::kQuiet);
}

TEST_F(AShadow, IsCancelledByItsExecutorWhoMayHaveBeenFaster) {
  for (const Outcome said : {Outcome::kCancelled, Outcome::kDone}) {
    ended.clear();
    run(5);
    EXPECT_TRUE(shadows.cancel(5, now));
    EXPECT_TRUE(shadows.cancel(5, now)) << "again";
    const std::size_t stop = asked.size() - 1;
    EXPECT_EQ(question<StopDelegated>(stop).transfer, 5u);
    answer(stop, StopSeen{true});
    EXPECT_TRUE(ended.empty());
    over(5, said);
    ASSERT_THAT(ended, SizeIs(1));
    EXPECT_EQ(ended[0].state, said);
  }
  EXPECT_FALSE(shadows.cancel(5, now)) << "it has ended";
}

TEST_F(AShadow, ThatNeverRanIsCancelledAtOnce) {
  start(5);
  shadows.cancel(5, now);
  answer(1, StopSeen{false});
  answer(0, fail(ErrorCode::kCancelled, "it was stopped before"));
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].state, Outcome::kCancelled);
  EXPECT_EQ(ended[0].remote, Remote::kQuiet);
}

TEST_F(AShadow, OfASilentExecutorIsCancelledWithinBoundsAndItsPagesAreNotKnown) {
  run(5);
  shadows.cancel(5, now);
  const Shadows::Options options;
  pass(options.stopping + options.margin - 1ms);
  EXPECT_TRUE(ended.empty());
  pass(1ms);
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].state, Outcome::kCancelled);
  EXPECT_EQ(ended[0].remote, Remote::kUnreachable);
}

TEST_F(AShadow, WaitsWhileManyAreBeingHandedOverToItsExecutor) {
  const Shadows::Options options;
  for (TransferId id = 1; id <= options.unanswered + 2; ++id) start(id);
  EXPECT_THAT(asked, SizeIs(options.unanswered));
  start(1000, 100, "d");
  EXPECT_THAT(asked, SizeIs(options.unanswered + 1)) << "another executor has its own room";
  answer(0, Delegated{77});
  EXPECT_EQ(question<Delegate>(options.unanswered + 1).transfer, options.unanswered + 1);
  answer(1, fail(ErrorCode::kBusy, "no"));
  EXPECT_EQ(question<Delegate>(options.unanswered + 2).transfer, options.unanswered + 2);
}

TEST_F(AShadow, ThatWaitsNeedsNobodyToEnd) {
  const Shadows::Options options;
  for (TransferId id = 1; id <= options.unanswered + 3; ++id) start(id);
  shadows.cancel(options.unanswered + 1, now);
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].remote, Remote::kQuiet);
  shadows.executor_lost("b", {ErrorCode::kPeerDead, "node 'b' is dead"}, now);
  ASSERT_THAT(ended, SizeIs(options.unanswered + 3));
  EXPECT_EQ(ended.back().remote, Remote::kQuiet);
  EXPECT_EQ(ended.back().error.code, ErrorCode::kExecutorDied);
  EXPECT_EQ(ended[1].remote, Remote::kUnreachable) << "that may have been heard";
}

TEST_F(AShadow, ShowsHowFarItsExecutorHasCome) {
  run(5);
  pass(1s);
  EXPECT_THAT(question<LookAtDelegated>(1).transfers, ElementsAre(5));
  answer(1, DelegatedSeen{{{"running", 4096, 65536}}});
  const auto shown = shadows.snapshot();
  ASSERT_THAT(shown, SizeIs(1));
  EXPECT_EQ(shown[0].snapshot.state, Outbound::State::kRunning);
  EXPECT_EQ(shown[0].snapshot.bytes, 4096u);
  EXPECT_EQ(shown[0].snapshot.total_bytes, 65536u);
  EXPECT_EQ(shown[0].on, "b");
  EXPECT_EQ(shown[0].on_as, 77u);
  EXPECT_EQ(shadows.unfinished(5)->state, "running");
  pass(1s);
  answer(2, DelegatedSeen{{{"unknown", 0, 0}}});
  ASSERT_THAT(ended, SizeIs(1)) << "it waits for nothing";
  EXPECT_EQ(ended[0].remote, Remote::kUnreachable);
  pass(1h);
  EXPECT_THAT(asked, SizeIs(3)) << "with no shadow left nobody is asked";
}

TEST_F(AShadow, LooksAtEachInTurnWhereTheyAreMany) {
  for (TransferId id = 1; id <= 300; ++id) run(id);
  const std::size_t first = asked.size();
  pass(1s);
  EXPECT_EQ(question<LookAtDelegated>(first).transfers.front(), 1u);
  EXPECT_THAT(question<LookAtDelegated>(first).transfers, SizeIs(256));
  answer(first, fail(ErrorCode::kPeerUnreachable, "no answer"));
  pass(1s);
  EXPECT_EQ(question<LookAtDelegated>(first + 1).transfers.front(), 257u);
  EXPECT_THAT(question<LookAtDelegated>(first + 1).transfers, SizeIs(256));
}

TEST_F(AShadow, BoundsTheRequestsThatWaitHere) {
  const Shadows::Options options;
  EXPECT_TRUE(shadows.has_room(options.waiting_bytes));
  start(5, 1000);
  EXPECT_EQ(shadows.has_room(options.waiting_bytes).error().code, ErrorCode::kResourceExhausted);
  answer(0, Delegated{77});
  EXPECT_TRUE(shadows.has_room(options.waiting_bytes)) << "it is over there";
}

}  // namespace
}  // namespace penstock
