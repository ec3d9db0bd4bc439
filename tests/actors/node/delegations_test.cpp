#include "actors/node/delegations.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace penstock {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using Outcome = TransferResult::State;

class ADelegation : public testing::Test {
 protected:
  ADelegation()
      : delegations(
            {},
            {[this](const std::string& asker, const Delegate& last,
                    std::shared_ptr<const std::vector<std::byte>> request) -> Result<TransferId> {
               if (refusal) return tl::unexpected(*refusal);
               ran.push_back({asker, last, request->size()});
               return next_id++;
             },
             [this](TransferId id) { cancelled.push_back(id); },
             [this](const std::string& node, std::uint64_t token, Question question, TimePoint) {
               told.push_back({node, token, std::get<DelegatedEnded>(std::move(question))});
             }}) {}

  Answer part(TransferId id, std::uint32_t total, std::uint32_t offset, std::size_t bytes,
              Incarnation peer = 9) {
    Delegate one;
    one.transfer = id;
    one.total = total;
    one.offset = offset;
    one.part.bytes.resize(bytes);
    return delegations.delegate("a", peer, one, now);
  }
  Answer ask(TransferId id, Incarnation peer = 9) { return part(id, 10, 0, 10, peer); }
  Answer stop(TransferId id) { return delegations.stop("a", 9, {id}, now); }
  bool end(TransferId ours, Outcome state = Outcome::kDone) {
    TransferResult result;
    result.id = ours;
    result.state = state;
    result.bytes = 4096;
    result.error.message = std::string(10000, 'x');
    result.landed.assign(30000, 7);
    return delegations.ended(result, now);
  }
  static ErrorCode refused(const Answer& answer) {
    const auto* said = std::get_if<Refused>(&answer);
    return said != nullptr ? said->error.code : ErrorCode::kInternal;
  }
  static TransferId accepted(const Answer& answer) {
    const auto* said = std::get_if<Delegated>(&answer);
    return said != nullptr ? said->executed_as : 999;
  }

  struct Ran {
    std::string asker;
    Delegate last;
    std::size_t bytes;
  };
  struct Told {
    std::string node;
    std::uint64_t token;
    DelegatedEnded end;
  };
  TimePoint now{1h};
  TransferId next_id = 100;
  std::optional<Error> refusal;
  std::vector<Ran> ran;
  std::vector<TransferId> cancelled;
  std::vector<Told> told;
  Delegations delegations;
};

TEST_F(ADelegation, ThatIsAskedForAgainRunsOnce) {
  EXPECT_EQ(accepted(ask(5)), 100u);
  EXPECT_EQ(accepted(ask(5)), 100u);
  end(100);
  EXPECT_EQ(accepted(ask(5)), 100u);
  delegations.answered(told.at(0).token, Answer(EndSeen{}));
  EXPECT_EQ(accepted(ask(5)), 100u);
  EXPECT_THAT(ran, SizeIs(1));
}

TEST_F(ADelegation, ThatIsRefusedStaysRefused) {
  refusal = Error{ErrorCode::kNotFound, "no region 'kv'"};
  EXPECT_EQ(refused(ask(5)), ErrorCode::kNotFound);
  refusal.reset();
  EXPECT_EQ(refused(ask(5)), ErrorCode::kNotFound);
  EXPECT_THAT(ran, SizeIs(0));
}

TEST_F(ADelegation, ComesInPartsOfWhichEachMayComeTwice) {
  EXPECT_EQ(accepted(part(5, 30, 0, 10)), 0u);
  EXPECT_EQ(accepted(part(5, 30, 0, 10)), 0u);
  EXPECT_EQ(accepted(part(5, 30, 10, 10)), 0u);
  EXPECT_EQ(accepted(part(5, 30, 0, 10)), 0u);
  EXPECT_THAT(ran, SizeIs(0));
  EXPECT_EQ(accepted(part(5, 30, 20, 10)), 100u);
  EXPECT_EQ(accepted(part(5, 30, 20, 10)), 100u);
  EXPECT_EQ(accepted(part(5, 30, 0, 10)), 100u) << "a late one";
  ASSERT_THAT(ran, SizeIs(1));
  EXPECT_EQ(ran[0].bytes, 30u);
}

TEST_F(ADelegation, OfPartsThatDoNotFollowIsRefused) {
  EXPECT_EQ(refused(part(5, 30, 10, 10)), ErrorCode::kInvalidArgument);
  part(6, 30, 0, 10);
  EXPECT_EQ(refused(part(6, 30, 20, 10)), ErrorCode::kInvalidArgument);
  part(7, 30, 0, 10);
  EXPECT_EQ(refused(part(7, 40, 10, 10)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused(part(8, 30, 0, 31)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused(part(9, 30, UINT32_MAX, 10)), ErrorCode::kInvalidArgument);
  EXPECT_THAT(ran, SizeIs(0));
}

TEST_F(ADelegation, OfARequestThatIsTooLongIsRefusedByTheNameOfTheLimit) {
  const Answer answer = part(5, (64u << 20) + 1, 0, 10);
  EXPECT_EQ(refused(answer), ErrorCode::kResourceExhausted);
  EXPECT_THAT(std::get<Refused>(answer).error.message, HasSubstr("request.max_request_bytes"));
}

TEST_F(ADelegation, OfManyLongRequestsIsBounded) {
  for (TransferId id = 1; id <= 4; ++id) EXPECT_EQ(accepted(part(id, 64u << 20, 0, 10)), 0u);
  EXPECT_EQ(refused(part(5, 64u << 20, 0, 10)), ErrorCode::kResourceExhausted);
  now += 30001ms;  // nothing more has come of them
  EXPECT_EQ(accepted(part(6, 64u << 20, 0, 10)), 0u);
  EXPECT_EQ(refused(part(1, 64u << 20, 10, 10)), ErrorCode::kDeadlineExceeded);
}

TEST_F(ADelegation, OfManySmallRequestsIsBoundedToo) {
  for (TransferId id = 1; id <= 128; ++id) EXPECT_EQ(accepted(part(id, 30, 0, 10)), 0u);
  EXPECT_EQ(refused(part(129, 30, 0, 10)), ErrorCode::kResourceExhausted);
  EXPECT_EQ(accepted(part(1, 30, 10, 20)), 100u);
  EXPECT_EQ(accepted(part(130, 30, 0, 10)), 0u) << "one has come";
}

TEST_F(ADelegation, OfAPartWithoutBytesIsRefused) {
  EXPECT_EQ(refused(part(5, 30, 0, 0)), ErrorCode::kInvalidArgument);
  part(6, 30, 0, 10);
  EXPECT_EQ(refused(part(6, 30, 10, 0)), ErrorCode::kInvalidArgument);
  EXPECT_THAT(ran, SizeIs(0));
}

TEST_F(ADelegation, WhosePartsComeSlowlyWaitsForTheLastOfThem) {
  part(5, 30, 0, 10);
  part(6, 30, 0, 10);
  now += 20000ms;
  part(5, 30, 10, 10);
  now += 20000ms;
  EXPECT_EQ(accepted(part(5, 30, 20, 10)), 100u);
  EXPECT_EQ(refused(part(6, 30, 10, 10)), ErrorCode::kDeadlineExceeded);
}

TEST_F(ADelegation, ThatArrivesIsDroppedWhenItsAskerIsSilent) {
  for (TransferId id = 1; id <= 4; ++id) part(id, 64u << 20, 0, 10);
  delegations.asker_lost("a", false);
  delegations.asker_back("a", now);
  EXPECT_EQ(accepted(part(5, 64u << 20, 0, 10)), 0u) << "there is room again";
  EXPECT_EQ(refused(part(1, 64u << 20, 10, 10)), ErrorCode::kInvalidArgument);
}

TEST_F(ADelegation, OfANewLifeIsNotTouchedByQuestionsOfTheFormerOne) {
  ask(5, 10);
  EXPECT_EQ(delegations.place_of("a", 9, 5, now).state, "unknown");
  EXPECT_EQ(refused(ask(5, 9)), ErrorCode::kStalePeer);
  EXPECT_EQ(refused(stop(5)), ErrorCode::kStalePeer);
  EXPECT_EQ(delegations.place_of("a", 11, 5, now).state, "unknown");
  EXPECT_EQ(delegations.place_of("a", 10, 5, now).running, 100u);
  EXPECT_THAT(cancelled, SizeIs(0));
}

TEST_F(ADelegation, ThatIsStoppedBeforeItComesNeverRuns) {
  EXPECT_FALSE(std::get<StopSeen>(stop(5)).running);
  EXPECT_EQ(refused(ask(5)), ErrorCode::kCancelled);
  part(6, 30, 0, 10);
  EXPECT_FALSE(std::get<StopSeen>(stop(6)).running);
  EXPECT_EQ(refused(part(6, 30, 10, 20)), ErrorCode::kCancelled);
  EXPECT_THAT(ran, SizeIs(0));
}

TEST_F(ADelegation, ThatRunsIsStoppedAsATransferOfThisNode) {
  ask(5);
  EXPECT_TRUE(std::get<StopSeen>(stop(5)).running);
  EXPECT_THAT(cancelled, ElementsAre(100));
  EXPECT_TRUE(end(100, Outcome::kCancelled));
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].end.state, static_cast<std::uint8_t>(Outcome::kCancelled));
  EXPECT_TRUE(std::get<StopSeen>(stop(5)).running) << "its end is on its way";
}

TEST_F(ADelegation, TellsItsEndToItsAskerInAMessageThatFits) {
  ask(5);
  EXPECT_FALSE(end(1)) << "a transfer of our own";
  EXPECT_TRUE(end(100, Outcome::kFailed));
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].node, "a");
  EXPECT_EQ(told[0].end.transfer, 5u);
  EXPECT_EQ(told[0].end.executed_as, 100u);
  EXPECT_EQ(told[0].end.bytes, 4096u);
  EXPECT_TRUE(told[0].end.landed_truncated);
  EXPECT_EQ(told[0].end.landed.bytes.size() % 24, 0u);
  Message message;
  message.body = Question(told[0].end);
  EXPECT_TRUE(encode(message)) << encode(message).error().message;
  EXPECT_FALSE(end(100)) << "once";
}

TEST_F(ADelegation, TellsItsEndAgainUntilItIsConfirmed) {
  ask(5);
  end(100);
  delegations.answered(told[0].token, fail(ErrorCode::kPeerUnreachable, "no answer"));
  EXPECT_EQ(delegations.unfinished(), 1u);
  EXPECT_EQ(delegations.place_of("a", 9, 5, now).state, "ended");
  ASSERT_THAT(told, SizeIs(2)) << "it looks, so it is there";
  delegations.place_of("a", 9, 5, now);
  EXPECT_THAT(told, SizeIs(2)) << "that is still being told";
  delegations.answered(told[1].token, Answer(EndSeen{}));
  EXPECT_EQ(delegations.unfinished(), 0u);
  delegations.place_of("a", 9, 5, now);
  EXPECT_THAT(told, SizeIs(2));
}

TEST_F(ADelegation, OfAnAskerThatIsGoneIsCancelledAndForgotten) {
  ask(5);
  ask(6);
  end(101);
  EXPECT_EQ(delegations.unfinished(), 2u);
  delegations.asker_lost("a", true);
  EXPECT_THAT(cancelled, ElementsAre(100));
  EXPECT_EQ(delegations.unfinished(), 1u) << "what runs still";
  EXPECT_TRUE(end(100, Outcome::kCancelled)) << "nobody's, and not our client's";
  EXPECT_THAT(told, SizeIs(1)) << "nobody is told";
  EXPECT_EQ(delegations.unfinished(), 0u);
}

TEST_F(ADelegation, OfAnAskerThatComesBackIsToldThen) {
  ask(5);
  delegations.asker_lost("a", false);
  end(100, Outcome::kCancelled);
  EXPECT_THAT(told, SizeIs(0));
  EXPECT_EQ(delegations.unfinished(), 0u) << "a drain does not wait for it";
  delegations.asker_back("a", now);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(accepted(ask(5)), 100u) << "and it does not run again";
}

TEST_F(ADelegation, OfARestartedAskerIsAnother) {
  ask(5);
  EXPECT_EQ(accepted(ask(5, 10)), 101u);
  EXPECT_THAT(cancelled, ElementsAre(100)) << "that of its former life";
  EXPECT_TRUE(end(100, Outcome::kCancelled));
  EXPECT_THAT(told, SizeIs(0));
  end(101);
  EXPECT_THAT(told, SizeIs(1));
}

TEST_F(ADelegation, IsForgottenLongAfterItsEndAndNotRunAgain) {
  ask(5);
  end(100);
  delegations.answered(told[0].token, Answer(EndSeen{}));
  now += 600001ms;
  EXPECT_EQ(accepted(ask(6)), 101u);
  EXPECT_EQ(delegations.place_of("a", 9, 5, now).state, "unknown");
  EXPECT_EQ(refused(ask(5)), ErrorCode::kStalePeer);
  EXPECT_FALSE(std::get<StopSeen>(stop(5)).running);
  EXPECT_THAT(ran, SizeIs(2));
}

}  // namespace
}  // namespace penstock
