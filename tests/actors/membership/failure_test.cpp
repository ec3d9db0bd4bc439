// Who is found dead, how soon, and who is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/actors/membership/simulated_network.hpp"

namespace penstock {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::vector<std::string> kFive = {"a", "b", "c", "d", "e"};

void start(SimulatedNetwork& net, const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts) net.start(host, 10, hosts);
  net.run(2s);
  for (const std::string& host : hosts) said(net[host]);
}

/// When the last of the hosts that run holds `node` for ended; -1 ms: not within `most`.
Milliseconds until_all_know(SimulatedNetwork& net, const std::vector<std::string>& hosts,
                            const std::string& node, Milliseconds most) {
  for (Milliseconds spent{0}; spent < most; spent += 10ms) {
    const bool all = std::all_of(hosts.begin(), hosts.end(), [&](const std::string& host) {
      return host == node || !net.runs(host) || net.state(host, node) >= MemberState::kLeft;
    });
    if (all) return spent;
    net.run(10ms);
  }
  return Milliseconds(-1);
}

TEST(Failure, DeathBySilenceIsKnownToAllFiveWithinThreeSeconds) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SimulatedNetwork net(seed);
    start(net, kFive);
    net.run(Milliseconds(seed * 7));
    net.kill("c");
    const auto spent = until_all_know(net, kFive, "c", 3s);
    EXPECT_GE(spent, 1s) << "seed " << seed << ": no time to contradict";
    EXPECT_LE(spent, 3s) << "seed " << seed;
  }
}

TEST(Failure, DeathWithAClosedConnectionIsKnownToAllFiveWithinASecond) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SimulatedNetwork net(seed);
    start(net, kFive);
    net.kill("c");
    net["a"].suspect("c", net.now);  // one of them had a connection
    const auto spent = until_all_know(net, kFive, "c", 1s);
    EXPECT_NE(spent, Milliseconds(-1)) << "seed " << seed;
  }
}

TEST(Failure, OfTwoTheOtherOneIsFoundDeadToo) {
  SimulatedNetwork net(1);
  start(net, {"a", "b"});
  net.kill("b");
  net.run(3s);
  const auto changes = net["a"].take_changes();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].state, MemberState::kDead);
  EXPECT_FALSE(changes[0].gone) << "perhaps only unreachable";
  EXPECT_THAT(changes[0].reason, HasSubstr("no answer to"));
}

TEST(Failure, APeerThatStopsAnsweringWithoutClosingIsDeadAndComesBackUnderItsIncarnation) {
  SimulatedNetwork net(1);
  start(net, kFive);
  net.stop("b");
  net.run(10s);
  EXPECT_THAT(said(net["a"]), ElementsAre("b/10 dead"));
  net.go_on("b");
  net.run(3s);
  EXPECT_THAT(said(net["a"]), ElementsAre("b/10 alive"));
  EXPECT_THAT(said(net["b"]), IsEmpty()) << "it was b that stood still";
}

TEST(Failure, AShortPauseKillsNobody) {
  SimulatedNetwork net(1);
  start(net, kFive);
  for (int round = 0; round < 20; ++round) {
    net.stop("b");
    net.run(900ms);
    net.go_on("b");
    net.run(2s);
  }
  for (const std::string& host : kFive) EXPECT_THAT(said(net[host]), IsEmpty()) << host;
  EXPECT_GT(net["b"].counters().refutations, 0u);
}

TEST(Failure, ASuspectThatAnswersStaysAlive) {
  SimulatedNetwork net(1);
  start(net, kFive);
  net["a"].suspect("b", net.now);
  net.run(2s);
  EXPECT_THAT(said(net["a"]), IsEmpty());
}

TEST(Failure, ASuspectThatIsGoneIsDeadAfterItsGrace) {
  SimulatedNetwork net(1);
  start(net, {"a", "b"});
  net.kill("b");
  net["a"].suspect("b", net.now);
  net.run(300ms);
  net["a"].suspect("b", net.now);  // again: does not start anew
  net.run(99ms);
  EXPECT_THAT(said(net["a"]), IsEmpty());
  net.run(2ms);
  const auto changes = net["a"].take_changes();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_THAT(changes[0].reason, HasSubstr("no answer within 400 ms"));
}

TEST(Failure, ALivingSuspectSurvivesALossyNetwork) {
  int died = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimulatedNetwork net(seed);
    start(net, {"a", "b"});
    net.faults.lost = 0.2;
    net["a"].suspect("b", net.now);
    net.run(500ms);
    died += said(net["a"]).empty() ? 0 : 1;
  }
  EXPECT_LE(died, 1);  // five tries, each lost with 36 %
}

TEST(Failure, SuspectingStrangersAndTheDeadDoesNothing) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  net["a"].suspect("nobody", net.now);
  EXPECT_THAT(net["a"].members(), IsEmpty());
}

TEST(Failure, ABrokenPathBetweenTwoIsNoDeath) {
  SimulatedNetwork net(1);
  start(net, kFive);
  net.cut("a", "b");
  net.run(60s);
  for (const std::string& host : kFive) EXPECT_THAT(said(net[host]), IsEmpty()) << host;
}

TEST(Failure, BothSidesOfAPartitionGoOnAndAgreeWithinFiveSecondsOfItsEnd) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SimulatedNetwork net(seed);
    start(net, kFive);
    for (const char* one : {"a", "b"})
      for (const char* other : {"c", "d", "e"}) net.cut(one, other);
    net.run(20s);
    EXPECT_EQ(net.state("a", "b"), MemberState::kAlive);
    EXPECT_EQ(net.state("d", "e"), MemberState::kAlive);
    EXPECT_EQ(net.state("a", "e"), MemberState::kDead);
    EXPECT_EQ(net.state("e", "b"), MemberState::kDead);
    for (const std::string& host : kFive) said(net[host]);
    net.heal();
    net.run(5s);
    for (const std::string& host : kFive) {
      for (const MemberChange& member : net[host].members())
        EXPECT_EQ(member.state, MemberState::kAlive) << seed << host << member.record.node;
      for (const std::string& change : said(net[host]))
        EXPECT_THAT(change, HasSubstr("alive")) << "seed " << seed << ": nobody dies of a heal";
    }
  }
}

// It comes back in the middle of burying everybody: with suspicions that end and deaths that nobody
// has heard of yet.
TEST(Failure, WhoeverWasCutOffDoesNotBuryTheOthersOnItsReturn) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SimulatedNetwork net(seed);
    start(net, kFive);
    for (const char* other : {"a", "b", "d", "e"}) net.cut("c", other);
    net.run(1500ms + seed * 150ms);
    for (const std::string& host : kFive) said(net[host]);
    net.heal();
    net.run(5s);
    for (const char* host : {"a", "b", "d", "e"})
      for (const std::string& change : said(net[host]))
        // That c itself was dead for a moment is no news to anybody.
        if (change != "c/10 dead") {
          EXPECT_THAT(change, Not(HasSubstr("dead"))) << "seed " << seed << ", " << host;
        }
    for (const char* host : {"a", "b", "d", "e"})
      EXPECT_EQ(net.state(host, "c"), MemberState::kAlive) << seed;
  }
}

TEST(Failure, WithoutSeedsInReachAPartitionHealsToo) {
  SimulatedNetwork net(1);
  net.start("a", 10, {});
  for (const char* host : {"b", "c", "d", "e"}) net.start(host, 10, {"a"});
  net.run(2s);
  for (const char* one : {"a", "b"})
    for (const char* other : {"c", "d", "e"}) net.cut(one, other);
  net.run(20s);
  net.kill("a");  // the only seed
  net.heal();
  net.run(5s);
  EXPECT_EQ(net.state("b", "e"), MemberState::kAlive);
  EXPECT_EQ(net.state("e", "b"), MemberState::kAlive);
}

// A node that stood still finds all its deadlines over while the answers wait in its socket.
TEST(Failure, ANodeThatStoodStillAccusesNobody) {
  SimulatedNetwork net(1);
  start(net, kFive);
  for (int round = 0; round < 20; ++round) {
    net.stop("a");
    net.run(700ms);
    net.go_on("a");
    net.run(3s);
  }
  EXPECT_EQ(net["a"].counters().burials, 0u);
  for (const char* host : {"b", "c", "d", "e"})
    EXPECT_EQ(net[host].counters().refutations, 0u) << host;
}

TEST(Failure, WhoeverIsHeldForDeadHearsItWithTheAnswerToItsQuestion) {
  std::vector<GossipFrame> sent;
  Swim swim(SimulatedNetwork::record("a", 10, "a"), {},
            {[&](const std::string&, const GossipFrame& frame) { sent.push_back(frame); }});
  const TimePoint now(1h);
  GossipFrame ping = frame_of("b", 20, "b", Ping{7, make_identity("a", 10, "", 0)});
  GossipFrame death = frame_of("c", 30, "c");
  death.rumors = {ping.sender};
  death.rumors[0].opinion = Opinion::kDead;
  swim.receive(death, now);
  sent.clear();
  swim.receive(ping, now);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(std::get<Ack>(sent[0].body).sequence, 7u);
  ASSERT_FALSE(sent[0].rumors.empty());
  EXPECT_EQ(sent[0].rumors[0].who->node, "b");
  EXPECT_EQ(sent[0].rumors[0].opinion, Opinion::kDead);
  // Meant for another process: no answer to it, but the asker learns who is here.
  sent.clear();
  ping.body = Ping{8, make_identity("a", 9, "", 0)};
  swim.receive(ping, now);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<Gossip>(sent[0].body));
  EXPECT_EQ(sent[0].sender.who->incarnation, 10u);
}

// One that cannot hear, but be heard, finds everybody silent.
TEST(Failure, WhoHasHeardFromItLatelyBelievesNoDeathAndAsks) {
  for (const auto& [silent, believed] : {std::pair(299ms, false), std::pair(300ms, true)}) {
    std::vector<GossipFrame> sent;
    Swim swim(SimulatedNetwork::record("a", 10, "a"), {},
              {[&](const std::string&, const GossipFrame& frame) { sent.push_back(frame); }});
    const TimePoint now(1h);
    GossipFrame death = frame_of("c", 30, "c");
    death.rumors = {frame_of("b", 20, "b").sender};
    death.rumors[0].opinion = Opinion::kDead;
    swim.receive(frame_of("b", 20, "b"), now);
    sent.clear();
    swim.receive(death, now + silent);
    EXPECT_EQ(swim.members().at(0).state == MemberState::kDead, believed);
    const auto asks = [](const GossipFrame& frame) {
      const auto* ping = std::get_if<Ping>(&frame.body);
      return ping != nullptr && ping->target->node == "b" && !frame.rumors.empty() &&
             frame.rumors[0].opinion == Opinion::kSuspect;
    };
    EXPECT_EQ(std::ranges::count_if(sent, asks), believed ? 0 : 1);
    death.rumors[0].revision = kFinalRevision;  // it ended, or was removed
    swim.receive(death, now + silent);
    EXPECT_EQ(swim.members().at(0).state, MemberState::kDead);
  }
}

TEST(Failure, WhoeverHearsNobodyBuriesNobodyForAClosedConnection) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimulatedNetwork net(seed);
    start(net, kFive);
    for (const char* other : {"b", "c", "d", "e"}) net.cut("a", other);
    net["a"].suspect("c", net.now);
    net.run(900ms);
    EXPECT_NE(net.state("a", "c"), MemberState::kDead) << "seed " << seed;
  }
}

TEST(Failure, TwoOfThreeWhoseConnectionsCloseAreDeadWithinASecond) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimulatedNetwork net(seed);
    const std::vector<std::string> three = {"a", "b", "c"};
    start(net, three);
    for (const char* other : {"b", "c"}) {
      net.kill(other);
      net["a"].suspect(other, net.now);
    }
    net.run(1s);
    EXPECT_EQ(net.state("a", "b"), MemberState::kDead) << "seed " << seed;
    EXPECT_EQ(net.state("a", "c"), MemberState::kDead) << "seed " << seed;
  }
}

// -- Lifeguard -----------------------------------------------------------------------------------

TEST(LocalHealth, ANodeThatNobodyAnswersDoubtsItself) {
  SimulatedNetwork net(1);
  start(net, kFive);
  EXPECT_EQ(net["a"].local_health(), 0);
  for (const char* other : {"b", "c", "d", "e"}) net.cut("a", other);
  net.run(1500ms);
  EXPECT_GT(net["a"].local_health(), 2);
  net.heal();
  net.run(20s);
  EXPECT_EQ(net["a"].local_health(), 0);
}

TEST(LocalHealth, HelpersThatSayTheyHaveNoAnswerShowThatItIsNotUs) {
  SimulatedNetwork net(1);
  start(net, kFive);
  net.kill("c");
  net.run(1500ms);
  EXPECT_LE(net["a"].local_health(), 1);
}

TEST(SuspicionTime, ShrinksWithEveryIndependentConfirmation) {
  const TimePoint now(1h);
  Suspicion suspicion(1, {1s, 6s, 3}, now);
  EXPECT_EQ(suspicion.deadline(), now + 6s);
  EXPECT_TRUE(suspicion.confirm(2));
  EXPECT_EQ(suspicion.deadline(), now + 3500ms);  // log 2 / log 4: half of the way
  EXPECT_FALSE(suspicion.confirm(2)) << "the same one again";
  EXPECT_FALSE(suspicion.confirm(1)) << "the first accuser";
  EXPECT_TRUE(suspicion.confirm(3));
  EXPECT_TRUE(suspicion.confirm(4));
  EXPECT_EQ(suspicion.deadline(), now + 1s);
  EXPECT_FALSE(suspicion.confirm(5)) << "nobody needs more";
}

TEST(SuspicionTime, IsTheShortestWhereNobodyCouldConfirm) {
  EXPECT_EQ(Suspicion(1, {1s, 6s, 0}, TimePoint(1h)).deadline(), TimePoint(1h) + 1s);
}

// -- what it costs -------------------------------------------------------------------------------

TEST(Traffic, InPeaceIsOneQuestionAndOneAnswerAPeriodAndNoRecord) {
  SimulatedNetwork net(1);
  start(net, kFive);
  net.run(10s);
  net.frames = net.frame_bytes = 0;
  net.run(100s);
  const double periods = 100 / 0.2;
  EXPECT_NEAR(static_cast<double>(net.frames) / 5 / periods, 2, 0.1);
  EXPECT_LT(net.frame_bytes / net.frames, 160u);
}

TEST(Traffic, FramesWithNewsKeepToTheirSize) {
  SimulatedNetwork net(1);
  std::vector<std::string> hosts;
  for (int i = 0; i < 60; ++i) hosts.push_back("a-rather-long-name-of-a-node-" + std::to_string(i));
  for (const std::string& host : hosts) net.start(host, 10, {hosts[0]});
  net.run(20s);
  for (int i = 1; i < 30; ++i) net.start(hosts[static_cast<std::size_t>(i)], 11, {});
  net.run(1s);
  EXPECT_LE(net.largest_news, net.options.frame_bytes);
  EXPECT_GT(net.largest_news, net.options.frame_bytes / 2) << "was there any news?";
}

TEST(Dissemination, GivesEachRumourItsNumberOfTimesTheLeastSentFirst) {
  Dissemination queue;
  const auto rumor = [](const std::string& node, std::uint64_t revision) {
    return Rumor{make_identity(node, 1, "tcp://" + node + ":1", 0), revision};
  };
  queue.add(rumor("a", 1));
  const std::size_t one = wire_bytes(rumor("a", 1));
  std::vector<Rumor> taken;
  queue.take(one, 3, taken);
  queue.add(rumor("b", 1));
  queue.take(one, 3, taken);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[1].who->node, "b");
  queue.add(rumor("a", 2));  // what was said of it before is void
  taken.clear();
  for (int i = 0; i < 10; ++i) queue.take(10 * one, 3, taken);
  EXPECT_TRUE(queue.empty());
  ASSERT_EQ(taken.size(), 5u);
  EXPECT_EQ(std::count_if(taken.begin(), taken.end(),
                          [](const Rumor& r) { return r.who->node == "a" && r.revision == 2; }),
            3);
}

TEST(Dissemination, HoldsOnlySoMuch) {
  Dissemination queue;
  for (int i = 0; i < 20000; ++i)
    queue.add(
        {make_identity("n" + std::to_string(i % 9000), 1, "", 0), static_cast<std::uint64_t>(i)});
  EXPECT_LE(queue.size(), 4096u);
}

}  // namespace
}  // namespace penstock
