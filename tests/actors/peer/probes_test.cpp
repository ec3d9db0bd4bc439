// Links that fail: out, probed, back; what takes their place; which card is to blame.
#include "tests/actors/peer/peer_fixture.hpp"

namespace penstock {
namespace {

const Error kDown{ErrorCode::kProvider, "cable"};

class Probes : public PeerTest {
 protected:
  /// `ours` x `theirs` cards of one device each, in use.
  void begin(std::size_t ours, std::size_t theirs) {
    make({ours}, theirs);
    bring_up(theirs);
    in_use = *peer->links(0, "numa0", now);
  }
  LinkId link(std::uint16_t from, std::uint16_t to) const {
    for (const auto& path : in_use)
      if (path.local_nic == from && path.remote_nic == to) return path.link;
    ADD_FAILURE() << from << "-" << to << " is not in use";
    return 0;
  }
  void fail(std::uint16_t from, std::uint16_t to) { peer->link_failed(link(from, to), kDown, now); }
  static bool all(std::uint16_t, std::uint16_t) { return true; }

  std::vector<Peer::PathCard> in_use;
};

TEST_F(Probes, AFailedLinkIsOutUntilAHelloOverExactlyThisLinkIsAnswered) {
  begin(2, 2);
  fail(0, 0);
  EXPECT_EQ(pairs(), (Pairs{{1, 1}}));
  advance(10s);
  EXPECT_EQ(pairs(), (Pairs{{1, 1}})) << "time alone brings nothing back";
  const Sent probe = [&] {
    for (const Sent& each : probes())
      if (each.link == link(0, 0)) return each;
    ADD_FAILURE() << "not probed";
    return Sent{};
  }();
  EXPECT_EQ(way_of(probe).from_device, "gpu0");
  EXPECT_EQ(way_of(probe).from_nic, 0);
  EXPECT_EQ(way_of(probe).to_device, "numa0");
  EXPECT_EQ(way_of(probe).to_nic, 0);
  backs.clear();
  answer_probes([](auto from, auto to) { return from == 0 && to == 0; });
  EXPECT_EQ(pairs(), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_THAT(backs, ElementsAre(std::pair<std::size_t, std::string>{0, "numa0"}));
}

TEST_F(Probes, ProbesSlowDownFromATenthToTwoSecondsAndEndWithTheFirstAnswer) {
  begin(1, 1);
  fail(0, 0);
  const auto since = now;
  std::vector<TimePoint> at;
  for (int i = 0; i < 1000; ++i) {
    const std::size_t before = probes().size();
    advance(10ms);
    if (probes().size() > before) at.push_back(now);
  }
  ASSERT_GE(at.size(), 6u);
  EXPECT_EQ(at[0] - since, 100ms);
  EXPECT_GE(at[3] - at[2], 2 * (at[2] - at[1]) - 20ms);
  EXPECT_LE(at.back() - at[at.size() - 2], 2010ms);
  EXPECT_LE(at.size(), 10u);
  answer_probes(all);
  const std::size_t before = sent.size();
  advance(60s);
  EXPECT_EQ(sent.size(), before) << "nothing is out, nothing is asked";
  EXPECT_EQ(peer->next_tick(), TimePoint::max());
}

TEST_F(Probes, ManyFailuresOfOneFaultCountOnce) {
  begin(2, 2);
  for (int i = 0; i < 100; ++i) fail(0, 0);
  advance(100ms);
  answer_probes(all);
  EXPECT_EQ(pairs(), (Pairs{{0, 0}, {1, 1}}));
}

TEST_F(Probes, ALinkThatFailsAgainSoonAfterItCameBackStaysOutLonger) {
  begin(2, 2);
  for (const auto wait : {100ms, 200ms, 400ms, 800ms}) {
    in_use = *peer->links(0, "numa0", now);  // it may have been opened anew
    fail(0, 0);
    advance(wait - 1ms);
    answer_probes(all);
    EXPECT_EQ(pairs().count({0, 0}), 0u) << wait.count();
    advance(1ms);
    answer_probes(all);
    EXPECT_EQ(pairs().count({0, 0}), 1u) << wait.count();
  }
}

TEST_F(Probes, ALinkWhoseTargetMovedIsProbedAtOnce) {
  begin(2, 2);
  fail(0, 0);
  const std::size_t before = probes().size();
  peer->moved("numa0", {{0, 2, address("in0.2")}}, now);
  ASSERT_GT(probes().size(), before);
  answer_probes(all);
  EXPECT_EQ(pairs(), (Pairs{{0, 0}, {1, 1}}));
}

TEST_F(Probes, ALinkWhoseProbesFailTooIsOpenedAnewUnderAnotherNumber) {
  begin(2, 2);
  fail(0, 0);
  std::set<LinkId> numbers;
  for (int i = 0; i < 8; ++i) {
    advance(2s);
    for (const Sent& each : probes())
      if (way_of(each).from_nic == 0 && way_of(each).to_nic == 0) numbers.insert(each.link);
    peer->link_failed(*numbers.rbegin(), {ErrorCode::kProvider, "address refused"}, now);
  }
  EXPECT_GT(numbers.size(), 1u);
}

TEST_F(Probes, AHelloIsAnsweredOverTheWayThatItCame) {
  begin(2, 2);
  sent.clear();
  deliver(9, Question(Hello{"b", {}, {"numa0", 1, "gpu0", 0}}));
  ASSERT_THAT(answers_sent<HelloOk>(), SizeIs(1));
  const LinkId way = sent.back().link;
  EXPECT_EQ(inbound[way], "in1.1");
  for (const Opened& each : opened) {
    if (each.link.link == way) {
      EXPECT_EQ(each.link.nic, 0);
    }
  }
  deliver(10, Question(Hello{"b", {}, {"numa0", 7, "gpu0", 3}}));  // no such cards
  EXPECT_THAT(answers_sent<HelloOk>(), SizeIs(2));
}

// -- replacements --------------------------------------------------------------------------------

TEST_F(Probes, ADeadCardOfOursCostsOneRailAndTheOrphanFindsAPartner) {
  begin(4, 4);
  fail(0, 0);
  EXPECT_EQ(pairs(), (Pairs{{1, 1}, {2, 2}, {3, 3}}));
  answer_probes([](auto from, auto) { return from != 0; });
  EXPECT_EQ(pairs().size(), 4u) << "their card 0 is joined by another of ours";
  for (const auto& [from, to] : pairs()) EXPECT_NE(from, 0);
}

TEST_F(Probes, ADeadCardHereAndAnotherOneThereCostOneRailTogether) {
  begin(4, 4);
  fail(0, 0);  // ours
  fail(1, 1);  // theirs
  answer_probes([](auto from, auto to) { return from != 0 && to != 1; });
  EXPECT_EQ(pairs(), (Pairs{{1, 0}, {2, 2}, {3, 3}}));
}

TEST_F(Probes, WhatIsNotProvenTakesNobodysPlace) {
  begin(4, 4);
  fail(0, 0);
  advance(5s);
  EXPECT_EQ(pairs(), (Pairs{{1, 1}, {2, 2}, {3, 3}}));
}

TEST_F(Probes, WhenEverythingIsBackTheRailsAreAsBefore) {
  begin(4, 4);
  fail(0, 0);
  answer_probes([](auto from, auto) { return from != 0; });
  advance(5s);
  answer_probes(all);
  EXPECT_EQ(pairs(), (Pairs{{0, 0}, {1, 1}, {2, 2}, {3, 3}}));
  EXPECT_EQ(peer->next_tick(), TimePoint::max()) << "nothing is probed any more";
}

TEST_F(Probes, ACardThatThePollerCannotOpenIsNotUsedUntilItCan) {
  begin(2, 2);
  peer->card_is_up(0, 1, false, now);
  EXPECT_EQ(pairs(), (Pairs{{0, 0}}));
  backs.clear();
  peer->card_is_up(0, 1, true, now);
  EXPECT_EQ(pairs(), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_THAT(backs, SizeIs(1));
}

// -- standing still ------------------------------------------------------------------------------

TEST_F(Probes, ALinkThatStandsStillIsCutOffWhenThePeerAnswersOverAnother) {
  begin(4, 4);
  peer->link_still(link(2, 2), now);
  ASSERT_FALSE(probes().empty());
  for (const Sent& each : probes()) EXPECT_NE(each.link, link(2, 2));
  EXPECT_THAT(cut_offs, IsEmpty());
  deliver(probes().front().message.sequence, Answer(HelloOk{}));
  EXPECT_THAT(cut_offs, ElementsAre(link(2, 2)));
  EXPECT_EQ(pairs().size(), 4u) << "it is out once the poller says that it failed";
}

TEST_F(Probes, AStoppedPeerHasNothingCutOff) {
  begin(4, 4);
  for (int i = 0; i < 20; ++i) {
    for (std::uint16_t card = 0; card < 4; ++card) peer->link_still(link(card, card), now);
    advance(500ms);
  }
  EXPECT_THAT(cut_offs, IsEmpty());
  // It goes on, and what was asked while it stood still is answered late: no proof of anything.
  answer_probes(all);
  EXPECT_THAT(cut_offs, IsEmpty());
}

TEST_F(Probes, TheOnlyLinkThatThereIsIsNeverCutOff) {
  begin(1, 1);
  peer->link_still(link(0, 0), now);
  EXPECT_THAT(probes(), IsEmpty());
  EXPECT_THAT(cut_offs, IsEmpty());
}

// -- messages around a dark card -----------------------------------------------------------------

TEST_F(Probes, AQuestionLeavesADarkLinkThoughThePeerSpeaksOverOthers) {
  begin(4, 4);
  peer->ask(1, Fence{}, now + 2s, now);
  const LinkId dark = questions<Fence>().front().link;
  for (int i = 0; i < 40; ++i) {
    advance(10ms);
    deliver(1000 + i, Question(Fin{1, "gpu0"}));  // it is alive
  }
  bool elsewhere = false;
  for (const Sent& each : questions<Fence>()) elsewhere |= each.link != dark;
  EXPECT_TRUE(elsewhere) << "within 400 ms";
}

TEST_F(Probes, AnAnswerThatIsAskedForAgainTakesAnotherWay) {
  begin(4, 4);
  deliver(7, Question(Fence{}));
  peer->answer(7, Fenced{}, now);
  const LinkId first = sent.back().link;
  deliver(7, Question(Fence{}));
  EXPECT_THAT(answers_sent<Fenced>(), SizeIs(2));
  EXPECT_NE(sent.back().link, first);
}

// -- who is to blame -----------------------------------------------------------------------------

TEST_F(Probes, ACardOfOursIsOutWhenNoneOfItsLinksAnswersAndOthersDo) {
  begin(4, 4);
  fail(0, 0);
  for (int i = 0; i < 10; ++i) {
    advance(100ms);
    answer_probes([](auto from, auto) { return from != 0; });
  }
  EXPECT_EQ((views[{0, 0}]), CardView::kOut);
  EXPECT_THAT(out_because, HasSubstr("cable"));
  EXPECT_EQ((views[{0, 1}]), CardView::kWorks);
  advance(2s);
  answer_probes(all);
  EXPECT_EQ((views[{0, 0}]), CardView::kWorks);
}

TEST_F(Probes, ADeadCardOfTheirsIsNotBlamedOnOurs) {
  begin(4, 4);
  fail(0, 0);
  for (int i = 0; i < 10; ++i) {
    advance(100ms);
    answer_probes([](auto, auto to) { return to != 0; });
    EXPECT_NE((views[{0, 0}]), CardView::kOut);
  }
}

TEST_F(Probes, ASilentPeerBlamesNoCard) {
  begin(2, 2);
  fail(0, 0);
  fail(1, 1);
  advance(10s);
  for (const auto& [card, view] : views) EXPECT_NE(view, CardView::kOut);
}

TEST_F(Probes, AClosedPeerTakesBackWhatItSaid) {
  begin(2, 2);
  fail(0, 0);
  advance(2s);
  EXPECT_EQ((views[{0, 0}]), CardView::kOut);
  peer->close({ErrorCode::kPeerLeft, "gone"});
  EXPECT_EQ((views[{0, 0}]), CardView::kUnknown);
}

}  // namespace
}  // namespace penstock
