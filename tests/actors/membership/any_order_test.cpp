// Gossip arrives shuffled, duplicated, late: any order ends the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/actors/membership/simulated_network.hpp"

namespace penstock {
namespace {

GossipFrame alive(const std::string& node, Incarnation incarnation) {
  return frame_of(node, incarnation, node);
}
GossipFrame draining(const std::string& node, Incarnation incarnation) {
  GossipFrame frame = frame_of(node, incarnation, node);
  frame.sender.revision = 1;
  frame.sender.draining = true;
  return frame;
}
GossipFrame record(const std::string& node, Incarnation incarnation) {
  return frame_of(
      "witness", 1, "witness",
      Records{{*store_record(encode(SimulatedNetwork::record(node, incarnation, node)))}});
}
GossipFrame leave(const std::string& node, Incarnation incarnation) {
  GossipFrame frame = frame_of(node, incarnation, node);
  frame.sender.opinion = Opinion::kLeft;
  frame.sender.revision = kFinalRevision;
  return frame;
}
GossipFrame rumor(const std::string& node, Incarnation incarnation, std::uint64_t revision,
                  Opinion opinion) {
  GossipFrame frame = frame_of("witness", 1, "witness");
  Rumor said = frame_of(node, incarnation, node).sender;
  said.revision = revision;
  said.opinion = opinion;
  said.accuser = 77;
  frame.rumors = {said};
  return frame;
}

/// What is known at the end, and that the changes told on the way make sense.
class Listener {
 public:
  explicit Listener(Clock::duration step)
      : step_(step), swim_(SimulatedNetwork::record("self", 1, "self"), {}, {[](auto&&...) {}}) {}

  void hear(const GossipFrame& frame) {
    swim_.receive(frame, now_ += step_);
    for (const MemberChange& change : swim_.take_changes()) {
      const std::string& node = change.record.node;
      if (change.state == MemberState::kAlive || change.state == MemberState::kDraining) {
        const auto [before, first] = here_.emplace(node, change.state);
        EXPECT_TRUE(first || (before->second == MemberState::kAlive &&
                              change.state == MemberState::kDraining))
            << node << " " << name_of(before->second) << " and then " << name_of(change.state);
        before->second = change.state;
        EXPECT_FALSE(change.record.cards.empty()) << "here without its cards";
        EXPECT_GE(change.record.incarnation, newest_[node]) << "an old one came back";
        newest_[node] = change.record.incarnation;
      } else {
        EXPECT_EQ(here_.erase(node), 1u) << "ended but was not here";
      }
    }
  }

  std::vector<std::string> known() const {
    std::vector<std::string> result;
    for (const MemberChange& m : swim_.members())
      if (m.record.node != "witness")
        result.push_back(
            fmt::format("{}/{} {}", m.record.node, m.record.incarnation, name_of(m.state)));
    return result;
  }

 private:
  Clock::duration step_;
  Swim swim_;
  TimePoint now_ = TimePoint(1h);
  std::map<std::string, MemberState> here_;
  std::map<std::string, Incarnation> newest_;
};

/// So far apart by default that nobody's own word is younger than what is told of its death.
std::vector<std::string> after(std::vector<GossipFrame> frames, Clock::duration step = 1s) {
  Listener listener(step);
  for (const auto& frame : frames) listener.hear(frame);
  return listener.known();
}

TEST(AnyOrder, LeaveThenJoinAsANewIncarnation) {
  const std::vector<std::string> joining = {"b/2 joining"};
  EXPECT_EQ(after({alive("b", 1), leave("b", 1), alive("b", 2)}), joining);
  EXPECT_EQ(after({alive("b", 1), alive("b", 2), leave("b", 1)}), joining);
  EXPECT_EQ(after({alive("b", 2), leave("b", 1), alive("b", 1)}), joining);
  EXPECT_EQ(after({alive("b", 2), record("b", 2), leave("b", 1)}),
            (std::vector<std::string>{"b/2 alive"}));
}

TEST(AnyOrder, JoinThenLeaveReorderedStaysLeft) {
  const std::vector<std::string> left = {"b/1 left"};
  EXPECT_EQ(after({alive("b", 1), record("b", 1), leave("b", 1)}), left);
  EXPECT_EQ(after({leave("b", 1), alive("b", 1), record("b", 1)}), left);
  EXPECT_EQ(after({leave("b", 1), draining("b", 1), rumor("b", 1, 9, Opinion::kDead)}), left);
}

TEST(AnyOrder, ARestartedNodeThatLeftStaysLeft) {
  const std::vector<std::string> left = {"b/2 left"};
  EXPECT_EQ(after({alive("b", 1), leave("b", 2), alive("b", 2)}), left);
  EXPECT_EQ(after({alive("b", 2), leave("b", 2), alive("b", 1)}), left);
}

TEST(AnyOrder, AContradictedDeathStaysContradicted) {
  const std::vector<std::string> here = {"b/1 alive"};
  EXPECT_EQ(after({alive("b", 1), record("b", 1), rumor("b", 1, 0, Opinion::kDead),
                   rumor("b", 1, 1, Opinion::kAlive)}),
            here);
  EXPECT_EQ(after({rumor("b", 1, 1, Opinion::kAlive), record("b", 1),
                   rumor("b", 1, 0, Opinion::kDead), alive("b", 1)}),
            here);
}

TEST(AnyOrder, ShuffledDuplicatedAndLateFramesEndTheSame) {
  const std::vector<GossipFrame> frames = {alive("b", 1),
                                           leave("b", 1),
                                           alive("b", 2),
                                           rumor("b", 2, 0, Opinion::kSuspect),
                                           rumor("b", 2, 1, Opinion::kAlive),
                                           alive("c", 5),
                                           leave("c", 5),
                                           rumor("c", 5, 3, Opinion::kDead),
                                           alive("d", 7),
                                           alive("d", 8),
                                           rumor("d", 8, 0, Opinion::kDead),
                                           rumor("d", 7, 9, Opinion::kAlive),
                                           alive("e", 9),
                                           leave("e", 3),
                                           draining("f", 4),
                                           rumor("f", 4, 0, Opinion::kDead),
                                           alive("f", 4),
                                           rumor("g", 6, 2, Opinion::kSuspect),
                                           rumor("g", 6, 2, Opinion::kAlive)};
  // A record is asked for again until it is there: what comes before its member is no loss.
  const std::vector<GossipFrame> records = {record("b", 2), record("d", 8), record("e", 9),
                                            record("f", 4), record("g", 6), record("d", 7)};
  const auto finish = [&](std::vector<GossipFrame> all) {
    all.insert(all.end(), records.begin(), records.end());
    return after(std::move(all));
  };
  const auto expected = finish(frames);
  ASSERT_EQ(expected, (std::vector<std::string>{"b/2 alive", "c/5 left", "d/8 dead", "e/9 alive",
                                                "f/4 draining", "g/6 suspect"}));
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    auto shuffled = frames;
    for (int i = 0; i < 10; ++i) shuffled.push_back(frames[random() % frames.size()]);
    for (int i = 0; i < 6; ++i) shuffled.push_back(records[random() % records.size()]);
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    ASSERT_EQ(finish(shuffled), expected) << "seed " << seed;
  }
}

// But for a death that is told of one who has just spoken.
TEST(AnyOrder, NorDoesItMatterHowFastTheyCome) {
  const std::vector<GossipFrame> frames = {alive("b", 1),
                                           leave("b", 1),
                                           alive("b", 2),
                                           record("b", 2),
                                           rumor("b", 2, 0, Opinion::kSuspect),
                                           rumor("b", 2, 1, Opinion::kAlive),
                                           leave("c", 5),
                                           rumor("c", 5, 3, Opinion::kDead),
                                           draining("f", 4),
                                           rumor("f", 4, 0, Opinion::kDead),
                                           record("f", 4)};
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    auto shuffled = frames;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    shuffled.insert(shuffled.end(), {record("b", 2), record("f", 4)});
    ASSERT_EQ(after(shuffled, 1us), after(shuffled, 1s)) << "seed " << seed;
  }
}

// Nodes come, go, leave, drain and restart while frames are lost, doubled and overtake each other;
// in the end everybody agrees on who is there.
TEST(AnyOrder, AClusterOnABadNetworkAgreesInTheEnd) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SimulatedNetwork net(seed);
    std::mt19937_64 random(seed);
    net.faults = {0.2, 0.2, Milliseconds(300)};
    const std::vector<std::string> hosts = {"a", "b", "c", "d", "e"};
    std::map<std::string, Incarnation> running;
    Incarnation incarnation = 100;
    const auto restart = [&](const std::string& host) {
      running[host] = ++incarnation;
      net.start(host, incarnation, hosts);
    };
    for (const std::string& host : hosts) restart(host);
    for (int step = 0; step < 20; ++step) {
      net.run(Milliseconds(random() % 2000));
      const std::string& host = hosts[random() % hosts.size()];
      if (running.contains(host) && random() % 2 == 0) {
        if (random() % 2 == 0) net[host].drain(net.now);
        if (random() % 2 == 0) net[host].leave(net.now);
        net.kill(host);
        running.erase(host);
      } else {
        restart(host);
      }
    }
    net.faults = {0.05, 0.2, Milliseconds(50)};
    net.run(20s);
    for (const auto& [host, own] : running)
      for (const std::string& other : hosts) {
        if (other == host) continue;
        const bool there = running.contains(other);
        EXPECT_EQ(net.state(host, other) == MemberState::kAlive, there)
            << "seed " << seed << ": " << host << " of " << other << ": "
            << name_of(net.state(host, other));
        if (there) {
          EXPECT_EQ(net.incarnation(host, other), running[other]);
        }
      }
  }
}

}  // namespace
}  // namespace penstock
