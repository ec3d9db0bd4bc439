#include "tests/actors/peer/peer_fixture.hpp"

namespace penstock {
namespace {

class Questions : public PeerTest {};
class BeingAsked : public PeerTest {};

TEST_F(Questions, QuestionsAskedBeforeItIsUpWaitForTheHandshake) {
  make({1}, 1);
  peer->start(now);
  peer->ask(1, Fin{5, "numa0"}, now + 2s, now);
  advance(150ms);
  EXPECT_THAT(questions<Fin>(), IsEmpty());
  deliver(questions<Hello>().back().message.sequence, Answer(HelloOk{cards(1, 1)}));
  ASSERT_THAT(questions<Fin>(), SizeIs(1));
  deliver(questions<Fin>()[0].message.sequence, Answer(FinOk{}));
  ASSERT_TRUE(answers.contains(1));
  EXPECT_TRUE(answers.at(1));
}

TEST_F(Questions, AQuestionIsRepeatedUnderTheSameSequenceUntilAnsweredOnce) {
  make({1}, 1);
  bring_up(1);
  peer->ask(1, Fin{5, "numa0"}, now + 60s, now);
  advance(100ms + 200ms + 400ms + 500ms + 500ms);
  const auto asked = questions<Fin>();
  ASSERT_THAT(asked, SizeIs(6));
  for (const Sent& s : asked) EXPECT_EQ(s.message.sequence, asked[0].message.sequence);
  deliver(asked[0].message.sequence, Answer(FinOk{}));
  deliver(asked[0].message.sequence, Answer(FinOk{}));  // the answers to the repeats
  EXPECT_THAT(answers, SizeIs(1));
  advance(10s);
  EXPECT_THAT(questions<Fin>(), SizeIs(6));
}

TEST_F(Questions, SequencesAreUniqueEvenAfterThePeerIsMadeAnew) {
  std::set<std::uint64_t> sequences;
  for (int round = 0; round < 3; ++round) {
    make({1}, 1);
    bring_up(1);
    for (int i = 0; i < 10; ++i) peer->ask(100 * round + i, Fin{1, "numa0"}, now + 1s, now);
    now += 1ms;
  }
  for (const Sent& s : sent) sequences.insert(s.message.sequence);
  EXPECT_THAT(sequences, SizeIs(33));
}

TEST_F(Questions, AQuestionWithoutAnswerEndsAtItsDeadlineAndSaysSo) {
  make({1}, 1);
  bring_up(1);
  peer->ask(1, Fin{5, "numa0"}, now + 700ms, now);
  advance(699ms);
  EXPECT_THAT(answers, IsEmpty());
  advance(1ms);
  ASSERT_TRUE(answers.contains(1));
  EXPECT_EQ(answers.at(1).error().code, ErrorCode::kPeerUnreachable);
  EXPECT_THAT(answers.at(1).error().message, HasSubstr("Fin within 700 ms"));
  EXPECT_EQ(peer->next_tick(), TimePoint::max());
}

TEST_F(Questions, AQuestionWaitingForTheHandshakeEndsAtItsDeadline) {
  make({1}, 1);
  peer->start(now);
  peer->ask(1, Fin{5, "numa0"}, now + 700ms, now);
  advance(1s);
  ASSERT_TRUE(answers.contains(1));
  EXPECT_EQ(answers.at(1).error().code, ErrorCode::kPeerUnreachable);
}

TEST_F(Questions, ARefusalComesAsItsErrorWithTheNodesName) {
  make({1}, 1);
  bring_up(1);
  peer->ask(1, Open{}, now + 1s, now);
  deliver(questions<Open>()[0].message.sequence,
          Answer(Refused{{ErrorCode::kStaleRegion, "released"}}));
  ASSERT_FALSE(answers.at(1));
  EXPECT_EQ(answers.at(1).error().code, ErrorCode::kStaleRegion);
  EXPECT_EQ(answers.at(1).error().message, "node 'b' refused: released");
}

TEST_F(Questions, AnAnswerThatTheQuestionCannotHaveIsAnError) {
  make({1}, 1);
  bring_up(1);
  peer->ask(1, Open{}, now + 1s, now);
  deliver(questions<Open>()[0].message.sequence, Answer(FinOk{}));
  ASSERT_FALSE(answers.at(1));
  EXPECT_THAT(answers.at(1).error().message, HasSubstr("FinOk to Open"));
}

TEST_F(Questions, AQuestionTooLongToTravelIsAnsweredAtOnce) {
  make({1}, 1);
  bring_up(1);
  peer->ask(1, Fin{5, std::string(20000, 'x')}, now + 1s, now);
  ASSERT_FALSE(answers.at(1));
  EXPECT_EQ(answers.at(1).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(Questions, AQuestionWhoseLinkFailedIsRepeatedOverAnotherAtOnce) {
  make({2}, 2);
  bring_up(2);
  peer->ask(1, Fin{5, "numa0"}, now + 1s, now);
  const LinkId first = questions<Fin>()[0].link;
  peer->link_failed(first, {ErrorCode::kProvider, "cable"}, now);
  ASSERT_THAT(questions<Fin>(), SizeIs(2));
  EXPECT_NE(questions<Fin>()[1].link, first);
  EXPECT_TRUE(inbound.contains(first)) << "transfers may still hold it";
}

TEST_F(Questions, ASilentLinkIsLeftForAnotherWithoutAnyFailure) {
  make({2}, 2);
  bring_up(2);
  now += 1s;
  peer->ask(1, Fin{5, "numa0"}, now + 10s, now);
  advance(100ms);
  ASSERT_THAT(questions<Fin>(), SizeIs(2));
  EXPECT_NE(questions<Fin>()[0].link, questions<Fin>()[1].link);
}

TEST_F(Questions, ManySilentQuestionsLeaveALinkOnce) {
  make({8}, 8);
  bring_up(8);
  now += 1s;
  for (int i = 0; i < 50; ++i) peer->ask(i, Fin{1, "numa0"}, now + 10s, now);
  advance(100ms);
  EXPECT_THAT(opened, SizeIs(2));
}

TEST_F(Questions, WithEveryLinkBlockedAQuestionWaitsForTheFirstToComeBack) {
  make({1}, 1);
  bring_up(1);
  peer->link_failed(sent.back().link, {ErrorCode::kProvider, "down"}, now);
  const std::size_t before = sent.size();
  peer->ask(1, Fin{5, "numa0"}, now + 1s, now);
  EXPECT_EQ(sent.size(), before);
  advance(100ms);
  EXPECT_THAT(questions<Fin>(), SizeIs(1));
}

TEST_F(Questions, FailuresOfUnknownLinksAreIgnored) {
  make({1}, 1);
  bring_up(1);
  const std::size_t before = sent.size();
  peer->link_failed(777, {ErrorCode::kProvider, "not ours"}, now);
  EXPECT_EQ(sent.size(), before);
  EXPECT_EQ(peer->next_tick(), TimePoint::max());
}

TEST_F(BeingAsked, ARepeatedQuestionIsNotAskedAgain) {
  make({1}, 1);
  bring_up(1);
  deliver(7, Question(Fin{5, "gpu0"}));
  deliver(7, Question(Fin{5, "gpu0"}));  // still being worked on: dropped
  EXPECT_THAT(asked, ElementsAre(7));
  EXPECT_THAT(answers_sent<FinOk>(), IsEmpty());
  peer->answer(7, FinOk{}, now);
  EXPECT_THAT(answers_sent<FinOk>(), SizeIs(1));
  deliver(7, Question(Fin{5, "gpu0"}));  // answered: the answer again
  EXPECT_THAT(asked, ElementsAre(7));
  EXPECT_THAT(answers_sent<FinOk>(), SizeIs(2));
}

TEST_F(BeingAsked, OnlyTheNewestAnswerPerSequenceIsRepeated) {
  make({1}, 1);
  bring_up(1);
  deliver(7, Question(Fence{}));
  peer->answer(7, Fenced{}, now);
  peer->answer(7, AlreadyDone{}, now);
  deliver(7, Question(Fence{}));
  EXPECT_THAT(answers_sent<Fenced>(), SizeIs(1));
  EXPECT_THAT(answers_sent<AlreadyDone>(), SizeIs(2));
}

TEST_F(BeingAsked, TheLast1024AnswersAreKept) {
  make({1}, 1);
  bring_up(1);
  for (std::uint64_t i = 1; i <= 1025; ++i) {
    deliver(i, Question(Fin{i, "gpu0"}));
    peer->answer(i, FinOk{}, now);
  }
  asked.clear();
  deliver(2, Question(Fin{2, "gpu0"}));
  EXPECT_THAT(asked, IsEmpty());
  deliver(1, Question(Fin{1, "gpu0"}));  // too long ago: questions are idempotent
  EXPECT_THAT(asked, ElementsAre(1));
}

TEST_F(BeingAsked, OfTheAgeOfAQuestionMoreIsAssumedThanItCanBe) {
  make({1}, 1);
  bring_up(1);
  Message message;
  message.source = kTheirs;
  message.destination = kOurs;
  message.body = Question(Fin{5, "gpu0"});
  const auto age_of = [&](std::uint64_t sequence, std::uint64_t sent_after_ms) {
    message.sequence = sequence;
    message.sent_after_ms = sent_after_ms;
    peer->receive(message, now);
    return asked_at.back();
  };
  now += 10s;
  const std::uint64_t now_ms = PeerClock::ms_of(now);
  EXPECT_EQ(age_of(1, now_ms - 1700), now - 1700ms);
  EXPECT_EQ(age_of(2, now_ms + 1), now) << "their clock runs a little faster";
  EXPECT_EQ(age_of(3, ~0ull), now);
  EXPECT_EQ(age_of(4, 0), std::nullopt) << "an older version";
  // Whom they asked before this Peer was may have answered.
  EXPECT_EQ(age_of(5, now_ms - 10'000), now - 10s);
  EXPECT_EQ(age_of(6, now_ms - 10'001), TimePoint::min());
}

TEST_F(BeingAsked, AQuestionMayBeARepetitionOnceAnswersToNewerOnesAreForgotten) {
  make({1}, 1);
  bring_up(1);
  const auto ask = [&](std::uint64_t sequence) {
    Message message;
    message.source = kTheirs;
    message.destination = kOurs;
    message.sequence = sequence;
    message.sent_after_ms = PeerClock::ms_of(now);
    message.body = Question(Fin{5, "gpu0"});
    peer->receive(message, now);
    return asked_at.back();
  };
  for (std::uint64_t i = 10; i < 10 + 1024; ++i) {
    ask(i);
    peer->answer(i, FinOk{}, now);
  }
  EXPECT_EQ(ask(5), now) << "overtaken by others, none of which is forgotten";
  peer->answer(5, FinOk{}, now);  // that of 10 goes
  EXPECT_EQ(ask(9), TimePoint::min());
  EXPECT_EQ(ask(10), TimePoint::min());
  EXPECT_EQ(ask(5000), now);
}

TEST_F(Questions, EachMessageTellsWhatHasPassedOnThePeersClock) {
  make({1}, 1);
  peer->start(now);
  EXPECT_EQ(sent.back().message.sent_ms, PeerClock::ms_of(now));
  EXPECT_EQ(sent.back().message.sent_after_ms, 0u);
  deliver(questions<Hello>().back().message.sequence, Answer(HelloOk{cards(1, 1)}));
  const std::uint64_t heard = PeerClock::ms_of(now + their_clock);
  peer->ask(1, Fin{5, "numa0"}, now + 1s, now);
  EXPECT_EQ(sent.back().message.sent_after_ms, heard);
  now += 1000s;
  peer->ask(2, Fin{6, "numa0"}, now + 1s, now);
  const auto before = sent.back().message.sent_after_ms;
  EXPECT_EQ(before, heard + 800'000) << "clocks may drift apart by a fifth";
  // Repeated it tells the same: it is as old as the question.
  advance(100ms);
  EXPECT_EQ(sent.back().message.sent_after_ms, before);
  // What comes late was not sent late.
  Message late;
  late.source = kTheirs;
  late.destination = kOurs;
  late.sequence = 9;
  late.sent_ms = PeerClock::ms_of(now + their_clock - 3s);
  late.body = Answer(FinOk{});
  peer->receive(late, now);
  peer->ask(3, Fin{7, "numa0"}, now + 1s, now);
  EXPECT_EQ(sent.back().message.sent_after_ms, late.sent_ms);
  const auto heard_late = late.sent_ms;
  late.sent_ms -= 500;  // a repetition
  peer->receive(late, now);
  peer->ask(4, Fin{8, "numa0"}, now + 1s, now);
  EXPECT_EQ(sent.back().message.sent_after_ms, heard_late);
}

TEST_F(Questions, AnOwnerOfAnEarlierVersionGetsNoDataWithItsQuestion) {
  their_version = kSentVersion - 1;
  make({1}, 1);
  bring_up(1);
  Open with_data;
  with_data.data.bytes.resize(8);
  peer->ask(1, with_data, now + 1s, now);
  EXPECT_EQ(answers.at(1).error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(questions<Open>(), IsEmpty());
  peer->ask(2, Open{}, now + 1s, now);
  EXPECT_THAT(questions<Open>(), SizeIs(1));
}

TEST_F(BeingAsked, AnAnswerTooLongToTravelBecomesARefusal) {
  make({1}, 1);
  bring_up(1);
  deliver(7, Question(Open{}));
  peer->answer(7, OpenOk{std::string(20000, 'x'), {}, 1, 1, {}}, now);
  EXPECT_THAT(answers_sent<Refused>(), SizeIs(1));
}

TEST_F(BeingAsked, AnswersToNobodyAreNotSent) {
  make({1}, 1);
  bring_up(1);
  peer->answer(12345, FinOk{}, now);
  EXPECT_THAT(answers_sent<FinOk>(), IsEmpty());
}

TEST_F(BeingAsked, AnswersGoOverAnyUsableControlLink) {
  make({2}, 2);
  bring_up(2);
  const LinkId first = sent.back().link;
  deliver(7, Question(Fin{5, "gpu0"}));
  peer->link_failed(first, {ErrorCode::kProvider, "down"}, now);
  peer->answer(7, FinOk{}, now);
  ASSERT_THAT(answers_sent<FinOk>(), SizeIs(1));
  EXPECT_NE(sent.back().link, first);
}

TEST_F(BeingAsked, MessagesOfAnotherIncarnationNeverReachThePeer) {
  make({1}, 1);
  peer->start(now);
  Message message;
  message.sequence = sent[0].message.sequence;
  message.body = Answer(HelloOk{cards(1, 1)});
  message.source = kTheirs;
  message.destination = kOurs - 1;
  peer->receive(message, now);
  message.source = kTheirs - 1;
  message.destination = kOurs;
  peer->receive(message, now);
  EXPECT_FALSE(peer->is_up());
}

}  // namespace
}  // namespace penstock
