#include "actors/membership/static_membership.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/actors/membership/simulated_network.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<std::string> said(StaticMembership& membership) {
  std::vector<std::string> result;
  for (const MemberChange& change : membership.take_changes())
    result.push_back(fmt::format("{}/{} {}", change.record.node, change.record.incarnation,
                                 name_of(change.state)));
  return result;
}

TEST(Membership, NodesThatListEachOtherFindEachOther) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b", "c"});
  net.start("b", 20, {"a", "c"});
  net.start("c", 30, {"a", "b"});
  net.run(100ms);
  EXPECT_THAT(said(net["a"]), testing::UnorderedElementsAre("b/20 alive", "c/30 alive"));
  EXPECT_EQ(net["a"].members().at(0).record.cards.at(0).name, "lo");
}

TEST(Membership, OneSideListingTheOtherIsEnough) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  net.start("b", 20, {"a"});
  net.run(100ms);
  EXPECT_EQ(net.state("a", "b"), MemberState::kAlive);
  EXPECT_EQ(net.state("b", "a"), MemberState::kAlive);
  net.run(60s);  // and they stay in touch
  EXPECT_THAT(said(net["a"]), ElementsAre("b/20 alive"));
  EXPECT_THAT(said(net["b"]), ElementsAre("a/10 alive"));
}

TEST(Membership, FirstContactIsRetriedUntilTheOtherIsThere) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  net.run(1h);
  net.start("b", 20, {});
  net.run(600ms);
  EXPECT_EQ(net.state("a", "b"), MemberState::kAlive);
}

TEST(Membership, OnlyAnnouncementsCarryCardsAndTheyAreRareInPeace) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  net.start("b", 20, {"a"});
  net.run(1s);
  net.frames = net.frame_bytes = 0;
  net.run(100s);
  EXPECT_NEAR(static_cast<double>(net.frames), 2 * 100 / 0.475, 20);  // heartbeats alone
  EXPECT_LT(net.frame_bytes / net.frames, 80u);
}

TEST(Membership, OurOwnEndpointInTheListIsHarmless) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"a", "b"});
  net.start("b", 20, {"a", "b"});
  net.run(10s);
  EXPECT_THAT(said(net["a"]), ElementsAre("b/20 alive"));
  EXPECT_EQ(net["a"].duplicate_names(), 0u);
}

TEST(Membership, OurOwnEndpointUnderAnotherSpellingIsKnockedAtOnce) {
  int sent = 0;
  StaticMembership::Options options;
  options.endpoints = {"tcp://localhost:7500"};
  StaticMembership* self = nullptr;
  TimePoint now = TimePoint(1h);
  StaticMembership membership(SimulatedNetwork::record("a", 10, "127.0.0.1"), options,
                              {[&](const std::string&, std::vector<std::byte> frame) {
                                ++sent;
                                self->receive(frame, now);
                              }});
  self = &membership;
  membership.tick(now);
  EXPECT_EQ(sent, 1);
  EXPECT_EQ(membership.next_tick(), TimePoint::max());
}

TEST(Membership, ANodeThatAdvertisesAnotherEndpointThanTheListSaysIsKnockedAtOnce) {
  int knocks = 0;
  StaticMembership::Options options;
  options.endpoints = {"tcp://hostname:7500"};
  StaticMembership* self = nullptr;
  TimePoint now = TimePoint(1h);
  StaticMembership membership(
      SimulatedNetwork::record("a", 10, "a"), options,
      {[&](const std::string& endpoint, std::vector<std::byte> frame) {
        const auto decoded = *decode_gossip(frame);
        EXPECT_EQ(endpoint, "tcp://hostname:7500");
        const auto* announce = std::get_if<Announce>(&decoded);
        if (announce == nullptr) return;
        ++knocks;
        self->receive(encode(GossipFrame(Announce{SimulatedNetwork::record("b", 20, "10.0.0.2"),
                                                  false, announce->endpoint})),
                      now);
      }});
  self = &membership;
  for (int i = 0; i < 20; ++i, now += 100ms) membership.tick(now);
  EXPECT_EQ(knocks, 1);
  EXPECT_EQ(membership.members().at(0).state, MemberState::kAlive);
}

TEST(Membership, APeerThatStopsAnsweringWithoutClosingIsDeadAfterItsTime) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  net.start("b", 20, {"a"});
  net.run(10s);
  said(net["a"]);
  net.kill("b");
  net.run(2400ms);
  EXPECT_THAT(said(net["a"]), IsEmpty());
  net.run(700ms);
  const auto changes = net["a"].take_changes();
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].state, MemberState::kDead);
  EXPECT_EQ(changes[0].reason, "silent for 3000 ms");
}

TEST(Membership, ADeadMemberThatSpeaksAgainIsAliveUnderTheSameIncarnation) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  net.start("b", 20, {});
  net.run(1s);
  net.cut("a", "b");
  net.run(10s);
  EXPECT_EQ(net.state("a", "b"), MemberState::kDead);
  net.heal();
  net.run(1s);
  EXPECT_THAT(said(net["a"]), ElementsAre("b/20 alive", "b/20 dead", "b/20 alive"));
  EXPECT_THAT(said(net["b"]), ElementsAre("a/10 alive", "a/10 dead", "a/10 alive"));
}

TEST(Membership, ANodeThatRestartsWithin50MsReplacesItsOldIncarnationAtOnce) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  net.start("b", 20, {"a"});
  net.run(1s);
  said(net["a"]);
  net.kill("b");
  net.run(50ms);
  net.start("b", 21, {"a"});
  net.run(10ms);
  EXPECT_THAT(said(net["a"]), ElementsAre("b/20 dead", "b/21 alive"));
}

TEST(Membership, ANewNodeAtTheSameEndpointReplacesTheOldAtOnce) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  net.start("b", 20, {"a"}, "first");
  net.run(1s);
  said(net["a"]);
  const auto late =
      encode(GossipFrame(Announce{SimulatedNetwork::record("first", 20, "b"), false, ""}));
  net.kill("b");
  net.start("b", 21, {"a"}, "second");
  net.run(10ms);
  EXPECT_THAT(said(net["a"]), ElementsAre("first/20 dead", "second/21 alive"));
  net["a"].receive(late, net.now);
  EXPECT_EQ(net.state("a", "first"), MemberState::kDead);
}

TEST(Membership, TheSeedNodeRestartsAndItsMembersComeBackByThemselves) {
  SimulatedNetwork net(1);
  net.start("seed", 10, {});
  for (int i = 0; i < 8; ++i) net.start("n" + std::to_string(i), 20, {"seed"});
  net.run(1s);
  net.kill("seed");
  net.run(30s);
  net.start("seed", 11, {});
  net.run(1s);
  EXPECT_THAT(net["seed"].members(), SizeIs(8));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(net.incarnation("n" + std::to_string(i), "seed"), 11u);
}

TEST(Membership, APeerRemovedAndAddedAgain1000TimesEndsConnected) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  for (Incarnation round = 1; round <= 1000; ++round) {
    StaticMembership& b = net.start("b", round, {"a"});
    net.run(5ms);
    if (round % 2 == 0) b.leave(net.now);
  }
  net.start("b", 2000, {});
  net.run(1s);
  EXPECT_EQ(net.state("a", "b"), MemberState::kAlive);
  EXPECT_EQ(net.incarnation("a", "b"), 2000u);
  EXPECT_THAT(net["a"].members(), SizeIs(1));
}

TEST(Membership, LeavingIsToldToAllAndIsFinal) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"c"});
  net.start("b", 20, {"c"});
  net.start("c", 30, {});
  net.run(1s);
  said(net["a"]);
  net["c"].leave(net.now);
  net.run(10ms);
  EXPECT_THAT(said(net["a"]), ElementsAre("c/30 left"));
  EXPECT_EQ(net.state("b", "c"), MemberState::kLeft);
  net.run(30s);  // a and b knock, but who left says nothing any more
  EXPECT_THAT(said(net["a"]), IsEmpty());
  EXPECT_EQ(net["c"].next_tick(), TimePoint::max());
  net.start("c", 31, {});
  net.run(1s);
  EXPECT_THAT(said(net["a"]), ElementsAre("c/31 alive"));
}

TEST(Membership, ASuspectThatAnswersStaysAlive) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  net.start("b", 20, {});
  net.run(1s);
  said(net["a"]);
  net["a"].suspect("b", net.now);
  net.run(2s);
  EXPECT_THAT(said(net["a"]), IsEmpty());
}

TEST(Membership, ASuspectThatIsGoneIsDeadWithin500Ms) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  net.start("b", 20, {});
  net.run(1s);
  said(net["a"]);
  net.kill("b");
  net["a"].suspect("b", net.now);
  net.run(400ms);
  net["a"].suspect("b", net.now);  // again: does not start anew
  net.run(99ms);
  EXPECT_THAT(said(net["a"]), IsEmpty());
  net.run(1ms);
  const auto changes = net["a"].take_changes();
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_THAT(changes[0].reason, HasSubstr("no answer within 500 ms"));
}

TEST(Membership, ALivingSuspectSurvivesALossyNetwork) {
  int died = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimulatedNetwork net(seed);
    net.start("a", 10, {"b"});
    net.start("b", 20, {"a"});
    net.run(1s);
    net.faults.lost = 0.2;
    said(net["a"]);
    net["a"].suspect("b", net.now);
    net.run(500ms);
    died += said(net["a"]).empty() ? 0 : 1;
  }
  EXPECT_LE(died, 1);  // five tries, each lost with 36 %
}

TEST(Membership, SuspectingStrangersAndTheDeadDoesNothing) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  net["a"].suspect("nobody", net.now);
  EXPECT_THAT(net["a"].members(), IsEmpty());
}

TEST(Membership, AnOlderIncarnationOfOurOwnNameIsIgnored) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  net["a"].receive(encode(GossipFrame(Announce{SimulatedNetwork::record("a", 9, "x"), true, ""})),
                   net.now);
  EXPECT_THAT(net["a"].members(), IsEmpty());
  EXPECT_EQ(net["a"].duplicate_names(), 0u);
  EXPECT_EQ(net.frames, 0u);
}

TEST(Membership, TwoNodesOfOneNameAreReportedAndNotFoughtOver) {
  SimulatedNetwork net(1);
  net.start("host1", 10, {"host2", "c"}, "same");
  net.start("host2", 20, {"host1", "c"}, "same");
  net.start("c", 30, {});
  net.run(10s);
  EXPECT_GT(net["host1"].duplicate_names(), 0u);
  EXPECT_EQ(net["host2"].duplicate_names(), 0u);  // the newer one is who the others know
  EXPECT_THAT(said(net["host1"]), IsEmpty());
  EXPECT_EQ(net.incarnation("c", "same"), 20u);
}

TEST(Membership, AHeartbeatOfAnUnknownIncarnationAsksForTheRecord) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  net.start("b", 20, {});
  net["a"].receive(
      encode(GossipFrame(Heartbeat{"b", 20, SimulatedNetwork::endpoint_of("b"), false})), net.now);
  EXPECT_THAT(net["a"].members(), IsEmpty());
  net.run(100ms);
  EXPECT_THAT(said(net["a"]), ElementsAre("b/20 alive"));
}

TEST(Membership, MalformedFramesAreDroppedAndCounted) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  net["a"].receive({}, net.now);
  net["a"].receive(std::vector<std::byte>(100, std::byte{0xff}), net.now);
  net["a"].receive(std::vector<std::byte>(kMaxGossipBytes + 1, std::byte{0x90}), net.now);
  net["a"].receive(encode(SimulatedNetwork::record("b", 1, "b")), net.now);
  net["a"].receive(encode(GossipFrame(Leave{"", 1})), net.now);
  net["a"].receive(encode(GossipFrame(Leave{std::string(200, 'x'), 1})), net.now);
  net["a"].receive(encode(GossipFrame(Leave{"b", 0})), net.now);
  EXPECT_EQ(net["a"].malformed_frames(), 7u);
  EXPECT_THAT(net["a"].members(), IsEmpty());
}

TEST(Membership, StrangersCannotMakeUsRememberWithoutEnd) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  for (int i = 0; i < 6000; ++i)
    net["a"].receive(encode(GossipFrame(Leave{"n" + std::to_string(i), 1})), net.now);
  EXPECT_THAT(net["a"].members(), SizeIs(4096));
}

TEST(Membership, DamagedFramesCostAtMostAnError) {
  SimulatedNetwork net(1);
  std::mt19937_64 random(7);
  const std::vector<GossipFrame> frames = {
      Announce{SimulatedNetwork::record("b", 9, "b"), false, "e"}, Heartbeat{"b", 9, "e", true},
      Leave{"b", 9}};
  for (int round = 0; round < 10000; ++round) {
    net.start("a", 10, {});
    auto bytes = encode(frames[random() % frames.size()]);
    for (auto changes = 1 + random() % 3; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    net["a"].receive(bytes, net.now);
  }
}

TEST(MemberRecord, EveryFieldComesBackAsItWasWritten) {
  MemberRecord record = SimulatedNetwork::record("b", ~0ull, "b");
  record.wire_version = 2;
  record.service_version = "0.1.0";
  record.provider = "tcp";
  record.request_endpoint = "tcp://b:7400";
  record.cards.push_back({"gpu1", 3, "eth1", FabricAddress(28, std::byte{7})});
  const auto back = decode_member(encode(record));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->node, "b");
  EXPECT_EQ(back->incarnation, ~0ull);
  EXPECT_EQ(back->wire_version, 2u);
  EXPECT_EQ(back->service_version, "0.1.0");
  EXPECT_EQ(back->provider, "tcp");
  EXPECT_EQ(back->request_endpoint, "tcp://b:7400");
  EXPECT_EQ(back->gossip_endpoint, "tcp://b:7500");
  ASSERT_THAT(back->cards, SizeIs(2));
  EXPECT_EQ(back->cards[1].device, "gpu1");
  EXPECT_EQ(back->cards[1].nic, 3);
  EXPECT_EQ(back->cards[1].name, "eth1");
  EXPECT_EQ(back->cards[1].control, FabricAddress(28, std::byte{7}));
}

}  // namespace
}  // namespace penstock
