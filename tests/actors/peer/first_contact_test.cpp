#include "tests/actors/peer/peer_fixture.hpp"

namespace penstock {
namespace {

class FirstContact : public PeerTest {};

TEST_F(FirstContact, FirstContactGoesFromOurFirstCardToTheirFirstCard) {
  make({2, 1}, 2);
  peer->start(now);
  ASSERT_THAT(opened, SizeIs(1));
  EXPECT_EQ(opened[0].device, 0u);
  EXPECT_EQ(opened[0].link.nic, 0);
  EXPECT_EQ(text_of(opened[0].link.control), "control0");
  EXPECT_THAT(opened[0].link.inbound, IsEmpty());
  ASSERT_THAT(questions<Hello>(), SizeIs(1));
  const Hello hello = std::get<Hello>(std::get<Question>(sent[0].message.body));
  EXPECT_EQ(hello.node, "a");
  ASSERT_THAT(hello.devices, SizeIs(1));
  EXPECT_EQ(text_of(hello.devices[0].cards.at(0).address), "our0");
  EXPECT_FALSE(peer->is_up());
}

TEST_F(FirstContact, AnAnsweredHelloMakesItUpOnceAndQuiet) {
  make({1}, 1);
  bring_up(1);
  deliver(questions<Hello>()[0].message.sequence, Answer(HelloOk{cards(1, 1)}));
  EXPECT_EQ(ups, 1);
  EXPECT_EQ(peer->next_tick(), TimePoint::max());
  advance(60s);
  EXPECT_THAT(questions<Hello>(), SizeIs(1));
}

TEST_F(FirstContact, AnInboundHelloIsAnsweredAndCountsAsProofToo) {
  make({1}, 1);
  peer->start(now);
  deliver(9, Question(Hello{"b", cards(1, 4)}));
  EXPECT_TRUE(peer->is_up());
  EXPECT_EQ(ups, 1);
  ASSERT_THAT(answers_sent<HelloOk>(), SizeIs(1));
  EXPECT_EQ(sent.back().message.sequence, 9u);
  EXPECT_EQ(text_of(answers_sent<HelloOk>()[0].devices.at(0).cards.at(0).address), "our0");
  const auto paths = peer->links(0, "numa0", now);
  ASSERT_TRUE(paths);
  EXPECT_THAT(inbound_of(*paths), ElementsAre("in0.4"));
  // Ours is still repeated: only its answer proves that they know our cards.
  advance(100ms);
  EXPECT_THAT(questions<Hello>(), SizeIs(2));
}

TEST_F(FirstContact, AHelloUnderAnotherNameIsRefused) {
  make({1}, 1);
  peer->start(now);
  deliver(9, Question(Hello{"c", cards(1, 1)}));
  EXPECT_FALSE(peer->is_up());
  ASSERT_THAT(answers_sent<Refused>(), SizeIs(1));
  EXPECT_THAT(answers_sent<Refused>()[0].error.message, HasSubstr("'c'"));
}

TEST_F(FirstContact, FirstContactWithoutAnswerTriesEveryPairOfCardsAndLeavesNothingOpen) {
  make({2}, 3);
  peer->start(now);
  advance(10s);
  std::set<std::pair<int, std::string>> tried;
  for (const Opened& o : opened) tried.insert({o.link.nic, text_of(o.link.control)});
  EXPECT_THAT(tried, SizeIs(6));
  EXPECT_THAT(inbound, SizeIs(1)) << "half-open links are rolled back";
  peer->close({ErrorCode::kPeerLeft, "gone"});
  EXPECT_THAT(inbound, IsEmpty());
}

TEST_F(FirstContact, FirstContactThatFailsIsRetriedWithBoundedBackOffAndNeverStruckOff) {
  make({1}, 1);
  peer->start(now);
  std::vector<TimePoint> tries = {now};
  for (int i = 0; i < 200; ++i) {
    peer->link_failed(sent.back().link, {ErrorCode::kProvider, "address refused"}, now);
    const std::size_t before = sent.size();
    for (int j = 0; j < 10 && sent.size() == before; ++j)
      advance(peer->next_tick() - now);  // at next_tick() exactly
    ASSERT_GT(sent.size(), before);
    ASSERT_GE(now - tries.back(), 100ms) << "no storm";
    ASSERT_LE(now - tries.back(), 2100ms) << "still trying";
    tries.push_back(now);
  }
  // A refused address was forgotten by the poller: each try opened the link anew, one at a time.
  EXPECT_THAT(opened, SizeIs(201));
  EXPECT_THAT(inbound, SizeIs(1));
  deliver(questions<Hello>().back().message.sequence, Answer(HelloOk{cards(1, 1)}));
  EXPECT_TRUE(peer->is_up());
}

TEST_F(FirstContact, FirstContactToManyDeadCardsKeepsItsPace) {
  make({32}, 32);
  peer->start(now);
  for (int i = 0; i < 1000 && !sent.empty(); ++i) {
    peer->link_failed(sent.back().link, {ErrorCode::kProvider, "refused"}, now);
    advance(10ms);
  }
  EXPECT_LT(sent.size(), 30u);  // 10 s at 500 ms, and the faster start
  EXPECT_GT(sent.size(), 15u);
}

TEST_F(FirstContact, AHelloThatIsRefusedIsAskedAgain) {
  make({1}, 1);
  peer->start(now);
  deliver(sent[0].message.sequence, Answer(Refused{{ErrorCode::kStalePeer, "not yet"}}));
  EXPECT_FALSE(peer->is_up());
  advance(100ms);
  EXPECT_THAT(questions<Hello>(), SizeIs(2));
}

TEST_F(FirstContact, AMemberWithoutCardsEndsItsQuestionsAtTheirDeadline) {
  make({1}, 0);
  peer->start(now);
  peer->ask(1, Fin{1, "numa0"}, now + 1s, now);
  advance(2s);
  EXPECT_EQ(answers.at(1).error().code, ErrorCode::kPeerUnreachable);
}

TEST_F(PeerTest, NodesOneVersionApartTalkAtTheLowerOne) {
  struct Case {
    std::uint32_t ours, theirs, spoken;
  };
  for (const Case& each : {Case{kWireVersion, kWireVersion, kWireVersion},
                           Case{kWireVersion, kWireVersion - 1, kWireVersion - 1},
                           Case{kWireVersion - 1, kWireVersion, kWireVersion - 1},
                           Case{kWireVersion, kWireVersion + 1, kWireVersion}}) {
    our_version = each.ours;
    their_version = each.theirs;
    make({1}, 1);
    sent.clear();
    peer->start(now);
    ASSERT_THAT(sent, testing::Not(IsEmpty()));
    EXPECT_EQ(sent.back().message.version, each.spoken);
    peer->close({ErrorCode::kPeerLeft, "gone"});
  }
}

}  // namespace
}  // namespace penstock
