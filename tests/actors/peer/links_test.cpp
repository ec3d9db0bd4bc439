#include "tests/actors/peer/peer_fixture.hpp"

namespace penstock {
namespace {

class Links : public PeerTest {};
class PeerEnd : public PeerTest {};

TEST_F(Links, LinksPairMoreCardsWithFewerInTurn) {
  make({4}, 2);
  bring_up(2);
  const auto paths = peer->links(0, "numa0", now);
  ASSERT_TRUE(paths);
  ASSERT_THAT(*paths, SizeIs(4));
  for (std::uint16_t i = 0; i < 4; ++i) {
    EXPECT_EQ((*paths)[i].local_nic, i);
    EXPECT_EQ((*paths)[i].remote_nic, i % 2);
    EXPECT_EQ((*paths)[i].generation, 1u);
  }
  EXPECT_THAT(inbound_of(*paths), ElementsAre("in0.1", "in1.1", "in0.1", "in1.1"));
}

TEST_F(Links, LinksToMoreRemoteCardsThanOursUseThemAll) {
  make({1}, 3);
  bring_up(3);
  EXPECT_THAT(inbound_of(*peer->links(0, "numa0", now)), ElementsAre("in0.1", "in1.1", "in2.1"));
}

TEST_F(Links, AControlLinkAndADataLinkOfTheSamePairAreTheSameLink) {
  make({1}, 1);
  bring_up(1);
  const auto paths = peer->links(0, "numa0", now);
  EXPECT_EQ((*paths)[0].link, sent[0].link);
  EXPECT_THAT(opened, SizeIs(1));
  EXPECT_EQ(moves, 1);  // told the inbound address once
  EXPECT_EQ((*peer->links(0, "numa0", now))[0].link, sent[0].link);
  EXPECT_EQ(moves, 1);
}

TEST_F(Links, LinksOpenOnFirstUseWithControlAndInboundAddress) {
  make({1, 1}, 1);
  bring_up(1);
  ASSERT_TRUE(peer->links(1, "numa0", now));
  ASSERT_THAT(opened, SizeIs(2));
  EXPECT_EQ(opened[1].device, 1u);
  EXPECT_EQ(text_of(opened[1].link.control), "control0");
  EXPECT_EQ(text_of(opened[1].link.inbound), "in0.1");
}

TEST_F(Links, LinksToWhatIsNotThereSayWhy) {
  make({1}, 1);
  peer->start(now);
  EXPECT_EQ(peer->links(0, "numa0", now).error().code, ErrorCode::kPeerUnreachable);
  deliver(sent[0].message.sequence, Answer(HelloOk{cards(1, 1)}));
  EXPECT_EQ(peer->links(0, "numa7", now).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(peer->links(5, "numa0", now).error().code, ErrorCode::kNotFound);
}

TEST_F(Links, ANewerGenerationMovesEveryAffectedLink) {
  make({2, 1}, 2);
  bring_up(2);
  const auto first = *peer->links(0, "numa0", now);
  const auto second = *peer->links(1, "numa0", now);
  peer->moved("numa0", {{0, 5, address("in0.5")}}, now);
  EXPECT_THAT(inbound_of(first), ElementsAre("in0.5", "in1.1"));
  EXPECT_THAT(inbound_of(second), ElementsAre("in0.5", "in1.1"));
  deliver(9, Question(Hello{"b", cards(2, 6)}));
  EXPECT_THAT(inbound_of(first), ElementsAre("in0.6", "in1.6"));
  EXPECT_EQ((*peer->links(0, "numa0", now))[1].generation, 6u);
  EXPECT_EQ((*peer->links(0, "numa0", now))[1].link, first[1].link);
}

TEST_F(Links, AGenerationNeverGoesBackward) {
  make({1}, 1);
  bring_up(1);
  const auto paths = *peer->links(0, "numa0", now);
  peer->moved("numa0", {{0, 5, address("in0.5")}}, now);
  deliver(9, Question(Hello{"b", cards(1, 3)}));  // late
  peer->moved("numa0", {{0, 5, address("other")}}, now);
  EXPECT_THAT(inbound_of(paths), ElementsAre("in0.5"));
  EXPECT_EQ((*peer->links(0, "numa0", now))[0].generation, 5u);
}

TEST_F(Links, CardsThatTheMemberRecordDoesNotNameAreIgnored) {
  make({1}, 1);
  bring_up(1);
  peer->moved("numa0", {{9, 5, address("x")}}, now);
  peer->moved("made-up", {{0, 5, address("x")}}, now);
  EXPECT_THAT(*peer->links(0, "numa0", now), SizeIs(1));
  EXPECT_FALSE(peer->links(0, "made-up", now));
}

TEST_F(Links, WithEveryLinkFailedAllAreOfferedRatherThanNone) {
  make({2}, 2);
  bring_up(2);
  const auto paths = *peer->links(0, "numa0", now);
  for (const auto& path : paths) peer->link_failed(path.link, {ErrorCode::kProvider, "down"}, now);
  EXPECT_THAT(*peer->links(0, "numa0", now), SizeIs(2));
}

TEST_F(Links, OurMovedInboundIsToldAgainAndAgainUntilTheNewestIsAnswered) {
  make({1}, 1);
  bring_up(1);
  ours[0].cards[0] = {0, 2, address("our0.2")};
  peer->inbound_moved(now);
  ours[0].cards[0] = {0, 3, address("our0.3")};
  peer->inbound_moved(now);
  auto hellos = questions<Hello>();
  ASSERT_THAT(hellos, SizeIs(3));
  deliver(hellos[1].message.sequence, Answer(HelloOk{cards(1, 1)}));  // to the one before
  advance(100ms);
  hellos = questions<Hello>();
  ASSERT_THAT(hellos, SizeIs(4));
  const Hello last = std::get<Hello>(std::get<Question>(hellos.back().message.body));
  EXPECT_EQ(last.devices[0].cards[0].generation, 3u);
  deliver(hellos.back().message.sequence, Answer(HelloOk{cards(1, 1)}));
  advance(10s);
  EXPECT_THAT(questions<Hello>(), SizeIs(4));
  EXPECT_EQ(ups, 1);
}

TEST_F(PeerEnd, CloseAnswersEveryOpenQuestionAndClosesEveryLink) {
  make({2}, 2);
  bring_up(2);
  ASSERT_TRUE(peer->links(0, "numa0", now));
  peer->ask(1, Fin{1, "numa0"}, now + 1s, now);
  peer->ask(2, Fin{2, "numa0"}, now + 1s, now);
  peer->close({ErrorCode::kPeerLeft, "node 'b' died"});
  EXPECT_EQ(answers.at(1).error().code, ErrorCode::kPeerLeft);
  EXPECT_EQ(answers.at(2).error().code, ErrorCode::kPeerLeft);
  EXPECT_THAT(inbound, IsEmpty());
  EXPECT_FALSE(peer->is_up());
  EXPECT_EQ(peer->next_tick(), TimePoint::max());
}

TEST_F(PeerEnd, AClosedPeerOnlyRefuses) {
  make({1}, 1);
  bring_up(1);
  peer->close({ErrorCode::kPeerLeft, "gone"});
  const std::size_t before = sent.size();
  peer->ask(3, Fin{1, "numa0"}, now + 1s, now);
  EXPECT_EQ(answers.at(3).error().code, ErrorCode::kPeerLeft);
  EXPECT_EQ(peer->links(0, "numa0", now).error().code, ErrorCode::kPeerLeft);
  deliver(7, Question(Fin{5, "gpu0"}));
  peer->inbound_moved(now);
  peer->start(now);
  peer->tick(now);
  EXPECT_THAT(asked, IsEmpty());
  EXPECT_EQ(sent.size(), before);
  EXPECT_THAT(inbound, IsEmpty());
}

TEST_F(PeerEnd, APeerRemovedAndAddedAgain1000TimesEndsConnectedAndLeavesNoLink) {
  for (int round = 0; round < 1000; ++round) {
    make({2}, 2);
    const std::size_t before = sent.size();
    peer->start(now);
    if (round % 3 != 0)  // closed at each step of the handshake
      deliver(sent[before].message.sequence, Answer(HelloOk{cards(2, 1)}));
    if (round % 3 == 2) {
      ASSERT_TRUE(peer->links(0, "numa0", now));
    }
    peer->close({ErrorCode::kPeerLeft, "removed"});
    ASSERT_THAT(inbound, IsEmpty());
    now += 1us;
  }
  make({2}, 2);
  sent.clear();
  bring_up(2);
}

}  // namespace
}  // namespace penstock
