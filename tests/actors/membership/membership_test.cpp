// Who is found, replaced, told and forgotten.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/actors/membership/simulated_network.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

TEST(Membership, NodesThatListEachOtherFindEachOther) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b", "c"});
  net.start("b", 20, {"a", "c"});
  net.start("c", 30, {"a", "b"});
  net.run(500ms);
  EXPECT_THAT(said(net["a"]), UnorderedElementsAre("b/20 alive", "c/30 alive"));
  EXPECT_EQ(net["a"].members().at(0).record.cards.at(0).name, "lo");
}

TEST(Membership, AnyOneSeedIsEnoughToFindEverybody) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  for (int i = 0; i < 20; ++i) net.start("n" + std::to_string(i), 20, {"a"});
  net.run(2s);
  net.start("late", 30, {"n7"});
  net.run(1s);
  EXPECT_THAT(net["late"].members(), SizeIs(21));
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(net.state("n" + std::to_string(i), "late"), MemberState::kAlive);
  net.run(60s);  // and they stay in touch
  for (const std::string& change : said(net["a"])) EXPECT_THAT(change, HasSubstr("alive"));
}

TEST(Membership, FirstContactIsRetriedUntilTheOtherIsThere) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  net.run(1h);
  net.start("b", 20, {});
  net.run(1100ms);
  EXPECT_EQ(net.state("a", "b"), MemberState::kAlive);
}

TEST(Membership, ASeedsNameIsLookedUpAtEachTryAndMayStandForManyAddresses) {
  Swim::Options options;
  options.seeds = {"tcp://service:7500"};
  std::vector<std::string> looked_up;
  std::vector<std::string> knocked_at;
  Swim::Network network;
  network.send = [&](const std::string& endpoint, const GossipFrame& frame) {
    if (std::holds_alternative<Compare>(frame.body)) knocked_at.push_back(endpoint);
  };
  network.resolve = [&](const std::string& seed) { looked_up.push_back(seed); };
  TimePoint now(1h);
  Swim swim(SimulatedNetwork::record("a", 10, "10.0.0.1"), options, std::move(network));
  const auto run_to_look_up = [&](std::vector<std::string> found) {
    looked_up.clear();
    for (int i = 0; i < 100 && looked_up.empty(); ++i, now += 20ms) swim.tick(now);
    ASSERT_THAT(looked_up, ElementsAre("tcp://service:7500"));
    knocked_at.clear();
    swim.resolved(looked_up[0], std::move(found), now);
  };
  run_to_look_up({});
  EXPECT_THAT(knocked_at, IsEmpty());
  // Ourselves among them: the name of a headless service stands for us too.
  run_to_look_up({"tcp://10.0.0.1:7500", "tcp://10.0.0.2:7500", "tcp://10.0.0.3:7500"});
  EXPECT_THAT(knocked_at, UnorderedElementsAre("tcp://10.0.0.2:7500", "tcp://10.0.0.3:7500"));
  run_to_look_up({"tcp://10.0.0.9:7500"});  // they moved
  EXPECT_THAT(knocked_at, ElementsAre("tcp://10.0.0.9:7500"));
  // Once one of them has answered there is nothing to knock for.
  swim.receive(frame_of("b", 20, "10.0.0.9", Table{"tcp://10.0.0.9:7500", 0}), now);
  looked_up.clear();
  for (int i = 0; i < 5; ++i, now += 100ms) swim.tick(now);
  EXPECT_THAT(looked_up, IsEmpty());
}

TEST(Membership, OurOwnEndpointInTheListIsHarmless) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"a", "b"});
  net.start("b", 20, {"a", "b"});
  net.run(10s);
  EXPECT_THAT(said(net["a"]), ElementsAre("b/20 alive"));
  EXPECT_EQ(net["a"].counters().duplicate_names, 0u);
}

TEST(Membership, OurOwnEndpointUnderAnotherSpellingIsKnockedAtOnce) {
  int sent = 0;
  Swim::Options options;
  options.seeds = {"tcp://localhost:7500"};
  Swim* self = nullptr;
  TimePoint now(1h);
  Swim swim(SimulatedNetwork::record("a", 10, "127.0.0.1"), options,
            {[&](const std::string&, const GossipFrame& frame) {
              ++sent;
              self->receive(frame, now);
            }});
  self = &swim;
  for (int i = 0; i < 500; ++i, now += 100ms) swim.tick(now);
  EXPECT_EQ(sent, 1);
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

// Faster than any detector even where it finds nobody by itself: whoever asks the old one learns.
TEST(Membership, ARestartedNodeWithoutSeedsIsRecognisedWhenItsOldSelfIsAsked) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  net.start("b", 20, {});
  net.run(1s);
  said(net["a"]);
  net.start("b", 21, {});
  net.run(250ms);
  EXPECT_THAT(said(net["a"]), ElementsAre("b/20 dead", "b/21 alive"));
}

TEST(Membership, ANewNodeAtTheSameEndpointReplacesTheOldAtOnce) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  net.start("b", 20, {"a"}, "first");
  net.run(1s);
  said(net["a"]);
  net.kill("b");
  net.start("b", 21, {"a"}, "second");
  net.run(10ms);
  EXPECT_THAT(said(net["a"]), UnorderedElementsAre("first/20 dead", "second/21 alive"));
  net["a"].receive(frame_of("first", 20, "b"), net.now);  // late
  EXPECT_EQ(net.state("a", "first"), MemberState::kDead);
  EXPECT_TRUE(net["a"].members().at(0).gone);
}

TEST(Membership, TheSeedNodeRestartsAndItsMembersComeBackByThemselves) {
  SimulatedNetwork net(1);
  net.start("seed", 10, {});
  for (int i = 0; i < 8; ++i) net.start("n" + std::to_string(i), 20, {"seed"});
  net.run(1s);
  net.kill("seed");
  net.run(30s);
  net.start("seed", 11, {});
  net.run(2s);
  EXPECT_THAT(net["seed"].members(), SizeIs(8));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(net.incarnation("n" + std::to_string(i), "seed"), 11u);
}

TEST(Membership, APeerRemovedAndAddedAgain1000TimesEndsConnected) {
  SimulatedNetwork net(1);
  net.start("a", 10, {"b"});
  for (Incarnation round = 1; round <= 1000; ++round) {
    Swim& b = net.start("b", round, {"a"});
    net.run(5ms);
    if (round % 2 == 0) b.leave(net.now);
  }
  net.start("b", 2000, {});
  net.run(2s);
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
  EXPECT_TRUE(net["b"].members().at(1).gone);
  GossipFrame late = frame_of("c", 30, "c");
  late.sender.revision = 5;
  net["a"].receive(late, net.now);
  EXPECT_EQ(net.state("a", "c"), MemberState::kLeft);
  net.run(30s);  // a and b knock, but who left says nothing any more
  EXPECT_THAT(said(net["a"]), IsEmpty());
  EXPECT_EQ(net["c"].next_tick(), TimePoint::max());
  net.start("c", 31, {});
  net.run(2s);
  EXPECT_THAT(said(net["a"]), ElementsAre("c/31 alive"));
}

TEST(Membership, DrainingIsKnownToAllAndToThoseWhoComeLater) {
  SimulatedNetwork net(1);
  for (const char* host : {"a", "b", "c", "d"}) net.start(host, 10, {"a"});
  net.run(1s);
  said(net["a"]);
  net["b"].drain(net.now);
  net.run(200ms);
  EXPECT_THAT(said(net["a"]), ElementsAre("b/10 draining"));
  EXPECT_EQ(net.state("d", "b"), MemberState::kDraining);
  net.start("late", 20, {"c"});
  net.run(1s);
  EXPECT_EQ(net.state("late", "b"), MemberState::kDraining);
  net.run(60s);
  EXPECT_EQ(net.state("a", "b"), MemberState::kDraining);
  net["b"].leave(net.now);
  net.run(100ms);
  EXPECT_THAT(said(net["a"]), ElementsAre("late/20 alive", "b/10 left"));
}

TEST(Membership, ADrainingNodeThatIsSuspectedStaysDraining) {
  SimulatedNetwork net(1);
  for (const char* host : {"a", "b", "c"}) net.start(host, 10, {"a"});
  net.run(1s);
  net["b"].drain(net.now);
  net.run(500ms);
  said(net["a"]);
  net.stop("b");
  net.run(1s);
  EXPECT_EQ(net.state("a", "b"), MemberState::kSuspect);
  net.go_on("b");
  net.run(1s);
  EXPECT_EQ(net.state("a", "b"), MemberState::kDraining);
  EXPECT_THAT(said(net["a"]), IsEmpty());
}

TEST(Membership, AnOperatorRemovesADeadMemberForGood) {
  SimulatedNetwork net(1);
  for (const char* host : {"a", "b", "c"}) net.start(host, 10, {"a"});
  net.run(1s);
  EXPECT_EQ(net["a"].remove("b", false, net.now).error().code, ErrorCode::kBusy);
  EXPECT_EQ(net["a"].remove("nobody", false, net.now).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(net["a"].remove("a", false, net.now).error().code, ErrorCode::kInvalidArgument);
  net.stop("b");
  net.run(10s);
  said(net["a"]);
  ASSERT_TRUE(net["a"].remove("b", false, net.now));
  EXPECT_TRUE(net["a"].remove("b", false, net.now)) << "twice does no harm";
  net.run(1s);
  EXPECT_EQ(net.state("c", "b"), MemberState::kLeft);
  net.go_on("b");  // it was only stopped
  net.run(5s);
  EXPECT_EQ(net.state("a", "b"), MemberState::kLeft);
  EXPECT_EQ(net.state("c", "b"), MemberState::kLeft);
  EXPECT_TRUE(net["b"].removed());
  net.start("b", 11, {"a"});
  net.run(1s);
  EXPECT_EQ(net.state("c", "b"), MemberState::kAlive);
}

TEST(Membership, ALivingMemberIsRemovedByForceAndGoesSilent) {
  SimulatedNetwork net(1);
  for (const char* host : {"a", "b", "c"}) net.start(host, 10, {"a"});
  net.run(1s);
  said(net["c"]);
  ASSERT_TRUE(net["a"].remove("b", true, net.now));
  net.run(1s);
  EXPECT_TRUE(net["b"].removed());
  EXPECT_THAT(said(net["c"]), ElementsAre("b/10 left"));
  net.run(60s);
  EXPECT_THAT(said(net["c"]), IsEmpty());
}

TEST(Membership, AnOlderIncarnationOfOurOwnNameIsIgnored) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  net["a"].receive(frame_of("a", 9, "x"), net.now);
  EXPECT_THAT(net["a"].members(), IsEmpty());
  EXPECT_EQ(net["a"].counters().duplicate_names, 0u);
}

TEST(Membership, ARunWithAClockThatIsBehindIsToldSo) {
  SimulatedNetwork net(1);
  net.start("b", 30, {});
  net.start("a", 20, {"b"});
  net.run(2s);
  EXPECT_EQ(net["a"].outrun_by(), 0u);
  net.kill("a");
  net.start("a", 10, {"b"});  // the clock went back meanwhile
  net.run(2s);
  EXPECT_EQ(net.incarnation("b", "a"), 20u) << "taken in though it seems to be older";
  EXPECT_EQ(net["a"].outrun_by(), 20u);
  net.kill("a");
  net.start("a", 21, {"b"});
  net.run(2s);
  EXPECT_EQ(net.incarnation("b", "a"), 21u);
  EXPECT_EQ(net["a"].outrun_by(), 0u);
}

TEST(Membership, TwoNodesOfOneNameAreReportedAndNotFoughtOver) {
  SimulatedNetwork net(1);
  net.start("host1", 10, {"host2", "c"}, "same");
  net.start("host2", 20, {"host1", "c"}, "same");
  net.start("c", 30, {});
  net.run(10s);
  EXPECT_GT(net["host1"].counters().duplicate_names, 0u);
  EXPECT_EQ(net["host2"].counters().duplicate_names, 0u);  // the newer one is who others know
  EXPECT_EQ(net.incarnation("c", "same"), 20u);
  EXPECT_EQ(net.state("c", "same"), MemberState::kAlive);
}

TEST(Membership, MembersThatEndedAreForgottenAfterTheirTimeAndStayForgotten) {
  SimulatedNetwork net(1);
  net.options.forget_dead = 60s;
  for (const char* host : {"a", "b", "c", "d"}) net.start(host, 10, {"a"});
  net.run(1s);
  net.kill("d");
  net["c"].leave(net.now);
  net.kill("c");
  net.run(30s);
  EXPECT_THAT(net["a"].members(), SizeIs(3));
  net.start("late", 20, {"a"});  // learns of the dead, with how long ago that was
  net.run(50s);
  EXPECT_THAT(net["a"].members(), SizeIs(2));
  EXPECT_THAT(net["late"].members(), SizeIs(2));
}

TEST(Membership, TheTimeSinceAnEndIsToldSoThatNobodyRemembersItLonger) {
  SimulatedNetwork net(1);
  net.options.forget_dead = 60s;
  net.start("a", 10, {});
  net.run(1s);
  GossipFrame table = frame_of("b", 20, "b", Table{});
  for (const char* node : {"c", "d"}) {
    table.rumors.push_back(frame_of(node, 30, node).sender);
    table.rumors.back().opinion = Opinion::kDead;
  }
  table.rumors[0].ended_s = 50;
  table.rumors[1].ended_s = 70;
  net["a"].receive(table, net.now);
  ASSERT_THAT(net["a"].members(), SizeIs(2)) << "b and c: d is long forgotten";
  // What it tells others counts on.
  std::vector<GossipFrame> told;
  Swim swim(SimulatedNetwork::record("e", 10, "e"), net.options,
            {[&](const std::string&, const GossipFrame& frame) { told.push_back(frame); }});
  swim.receive(table, net.now);
  told.clear();
  swim.receive(frame_of("f", 40, "f", Compare{"tcp://e:7500", BucketDigests(kBuckets, 1)}),
               net.now + 7s);
  ASSERT_EQ(told.size(), 1u);
  const auto about_c = std::find_if(told[0].rumors.begin(), told[0].rumors.end(),
                                    [](const Rumor& r) { return r.who->node == "c"; });
  ASSERT_NE(about_c, told[0].rumors.end());
  EXPECT_EQ(about_c->ended_s, 57u);
  net.run(15s);
  EXPECT_EQ(net["a"].members().size(), 1u);
}

TEST(Membership, TheLoadTravelsWithWhatIsSentAnyway) {
  SimulatedNetwork net(1);
  for (const char* host : {"a", "b", "c"}) net.start(host, 10, {"a"});
  net.run(1s);
  net["b"].set_load(77);
  net.run(2s);
  EXPECT_EQ(net["a"].members().at(0).load, 77u);
  EXPECT_EQ(net["c"].members().at(1).load, 77u);
}

TEST(Membership, StrangersCannotMakeUsRememberWithoutEnd) {
  SimulatedNetwork net(1);
  net.options.most_members = 100;
  net.start("a", 10, {});
  for (int i = 0; i < 1000; ++i)
    net["a"].receive(frame_of("n" + std::to_string(i), 1, "h" + std::to_string(i)), net.now);
  EXPECT_THAT(net["a"].members(), SizeIs(100));
}

TEST(Membership, MalformedFramesAreDroppedAndCounted) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  const auto hear = [&](const std::vector<std::byte>& bytes) {
    net["a"].receive(std::span<const std::byte>(bytes), net.now);
  };
  hear({});
  hear(std::vector<std::byte>(100, std::byte{0xff}));
  hear(std::vector<std::byte>(kMaxGossipBytes + 1, std::byte{0x90}));
  hear(encode(SimulatedNetwork::record("b", 1, "b")));
  for (auto [node, incarnation] :
       {std::pair<std::string, Incarnation>{"", 1}, {std::string(200, 'x'), 1}, {"b", 0}}) {
    GossipFrame frame = frame_of("b", 1, "b");
    frame.sender.who = make_identity(node, incarnation, "tcp://b:1", 0);
    hear(encode(frame));
  }
  hear(encode(frame_of("b", 1, "b", Compare{"", BucketDigests(kBuckets - 1)})));
  EXPECT_EQ(net["a"].counters().malformed_frames, 8u);
  EXPECT_THAT(net["a"].members(), IsEmpty());
}

TEST(Membership, DamagedFramesCostAtMostAnError) {
  SimulatedNetwork net(1);
  std::mt19937_64 random(7);
  const IdentityPtr a = make_identity("a", 10, "tcp://a:7500", 1);
  const IdentityPtr c = make_identity("c", 30, "tcp://c:7500", 1);
  const RecordPtr record = *store_record(encode(SimulatedNetwork::record("b", 9, "b")));
  std::vector<GossipFrame> frames = {
      frame_of("b", 9, "b"),
      frame_of("b", 9, "b", Ping{1, a}),
      frame_of("b", 9, "b", Ack{1}),
      frame_of("b", 9, "b", PingRequest{1, c}),
      frame_of("b", 9, "b", Nack{1}),
      frame_of("b", 9, "b", Compare{"tcp://a:7500", BucketDigests(kBuckets, 7)}),
      frame_of("b", 9, "b", Table{"tcp://a:7500", ~0ull}),
      frame_of("b", 9, "b", Fetch{{{"a", 10}, {"c", 30}}}),
      frame_of("b", 9, "b", Records{{record}})};
  for (GossipFrame& frame : frames)
    frame.rumors = {{a, 3, Opinion::kSuspect, false, 5, 0}, {c, 1, Opinion::kDead, true, 0, 9}};
  for (int round = 0; round < 20000; ++round) {
    if (round % 100 == 0) net.start("a", 10, {});
    auto bytes = encode(frames[random() % frames.size()]);
    for (auto changes = 1 + random() % 3; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    net["a"].receive(std::span<const std::byte>(bytes), net.now);
    if (round % 10 == 0) net.run(20ms);
  }
}

TEST(MemberRecord, EveryFieldComesBackAsItWasWritten) {
  MemberRecord record = SimulatedNetwork::record("b", ~0ull, "b");
  record.wire_version = 2;
  record.service_version = "0.1.0";
  record.provider = "tcp";
  record.request_endpoint = "tcp://b:7400";
  record.cards.push_back({"gpu1", 3, "eth1", FabricAddress(28, std::byte{7})});
  record.labels = {{"rack", "r7"}, {"zone", ""}};
  const auto back = decode_member(encode(record));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->node, "b");
  EXPECT_EQ(back->incarnation, ~0ull);
  EXPECT_EQ(back->wire_version, 2u);
  EXPECT_EQ(back->service_version, "0.1.0");
  EXPECT_EQ(back->provider, "tcp");
  EXPECT_EQ(back->request_endpoint, "tcp://b:7400");
  EXPECT_EQ(back->gossip_endpoint, "tcp://b:7500");
  EXPECT_EQ(back->labels, record.labels);
  ASSERT_THAT(back->cards, SizeIs(2));
  EXPECT_EQ(back->cards[1].device, "gpu1");
  EXPECT_EQ(back->cards[1].nic, 3);
  EXPECT_EQ(back->cards[1].name, "eth1");
  EXPECT_EQ(back->cards[1].control, FabricAddress(28, std::byte{7}));
}

// Large records travel once; everything else names them.
TEST(MemberRecord, TravelsByReferenceAndIsFetchedFromWhoeverHasIt) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  net.start("b", 20, {"a"});
  net.run(1s);
  net.cut("b", "c");  // c never hears b itself
  net.start("c", 30, {"a"});
  net.run(100ms);
  EXPECT_EQ(net.state("c", "b"), MemberState::kAlive);
  EXPECT_EQ(net["c"].members().at(1).record.cards.at(0).name, "lo");
}

TEST(MemberRecord, OneThatDoesNotMatchItsDigestIsNotTaken) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  net["a"].receive(frame_of("b", 20, "b"), net.now);
  MemberRecord forged = SimulatedNetwork::record("b", 20, "b");
  forged.provider = "another";
  net["a"].receive(frame_of("c", 30, "c", Records{{*store_record(encode(forged))}}), net.now);
  EXPECT_EQ(net.state("a", "b"), MemberState::kJoining);
  EXPECT_THAT(said(net["a"]), IsEmpty());
}

}  // namespace
}  // namespace penstock
