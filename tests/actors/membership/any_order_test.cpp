// Gossip arrives shuffled, duplicated, late: any order ends the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/actors/membership/simulated_network.hpp"

namespace penstock {
namespace {

std::vector<std::byte> announce(const std::string& node, Incarnation incarnation) {
  return encode(
      GossipFrame(Announce{SimulatedNetwork::record(node, incarnation, node), false, ""}));
}
std::vector<std::byte> heartbeat(const std::string& node, Incarnation incarnation) {
  return encode(GossipFrame(Heartbeat{node, incarnation, "", false}));
}
std::vector<std::byte> leave(const std::string& node, Incarnation incarnation) {
  return encode(GossipFrame(Leave{node, incarnation}));
}

/// What is known at the end, and that the changes told on the way make sense.
class Listener {
 public:
  Listener() : membership_(SimulatedNetwork::record("self", 1, "self"), {}, {[](auto&&...) {}}) {}

  void hear(const std::vector<std::byte>& frame) {
    membership_.receive(frame, now_ += 1us);
    for (const MemberChange& change : membership_.take_changes()) {
      if (change.state == MemberState::kAlive) {
        EXPECT_TRUE(alive_.insert(change.record.node).second) << "alive twice";
        EXPECT_FALSE(change.record.cards.empty()) << "alive without its cards";
        EXPECT_GE(change.record.incarnation, newest_[change.record.node]) << "an old one came back";
        newest_[change.record.node] = change.record.incarnation;
      } else {
        EXPECT_EQ(alive_.erase(change.record.node), 1u) << "ended but was not alive";
      }
    }
  }

  std::vector<std::string> known() const {
    std::vector<std::string> result;
    for (const MemberChange& m : membership_.members())
      result.push_back(fmt::format("{}/{} {} {}", m.record.node, m.record.incarnation,
                                   name_of(m.state), m.record.cards.size()));
    return result;
  }

 private:
  StaticMembership membership_;
  TimePoint now_ = TimePoint(1h);
  std::set<std::string> alive_;
  std::map<std::string, Incarnation> newest_;
};

std::vector<std::string> after(std::vector<std::vector<std::byte>> frames) {
  Listener listener;
  for (const auto& frame : frames) listener.hear(frame);
  return listener.known();
}

TEST(AnyOrder, LeaveThenJoinAsANewIncarnation) {
  const std::vector<std::string> alive = {"b/2 alive 1"};
  EXPECT_EQ(after({announce("b", 1), leave("b", 1), announce("b", 2)}), alive);
  EXPECT_EQ(after({announce("b", 1), announce("b", 2), leave("b", 1)}), alive);
  EXPECT_EQ(after({announce("b", 2), leave("b", 1), announce("b", 1)}), alive);
}

TEST(AnyOrder, JoinThenLeaveReorderedStaysLeft) {
  const std::vector<std::string> left = {"b/1 left 1"};
  EXPECT_EQ(after({announce("b", 1), leave("b", 1)}), left);
  EXPECT_EQ(after({leave("b", 1), announce("b", 1)}), left);
  EXPECT_EQ(after({leave("b", 1), announce("b", 1), heartbeat("b", 1)}), left);
}

TEST(AnyOrder, ARestartedNodeThatLeftStaysLeft) {
  const std::vector<std::string> left = {"b/2 left 1"};
  EXPECT_EQ(after({announce("b", 1), leave("b", 2), announce("b", 2)}), left);
  EXPECT_EQ(after({announce("b", 2), leave("b", 2), announce("b", 1)}), left);
}

TEST(AnyOrder, ShuffledDuplicatedAndLateFramesEndTheSame) {
  const std::vector<std::vector<std::byte>> frames = {
      announce("b", 1),  leave("b", 1), announce("b", 2),  heartbeat("b", 1), heartbeat("b", 2),
      announce("c", 5),  leave("c", 5), heartbeat("c", 5), announce("d", 7),  announce("d", 8),
      heartbeat("d", 7), leave("d", 7), announce("e", 9),  leave("e", 3)};
  const auto expected = after(frames);
  ASSERT_EQ(expected,
            (std::vector<std::string>{"b/2 alive 1", "c/5 left 1", "d/8 alive 1", "e/9 alive 1"}));
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    auto shuffled = frames;
    for (int i = 0; i < 10; ++i) shuffled.push_back(frames[random() % frames.size()]);
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    ASSERT_EQ(after(shuffled), expected) << "seed " << seed;
  }
}

// Nodes come, go, leave and restart while frames are lost, doubled and overtake each other; in the
// end everybody agrees on who is there.
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
        if (random() % 2 == 0) net[host].leave(net.now);
        net.kill(host);
        running.erase(host);
      } else {
        restart(host);
      }
    }
    net.faults = {0.05, 0.2, Milliseconds(50)};
    net.run(10s);
    for (const auto& [host, own] : running)
      for (const std::string& other : hosts) {
        if (other == host) continue;
        const bool there = running.contains(other);
        EXPECT_EQ(net.state(host, other) == MemberState::kAlive, there)
            << "seed " << seed << ": " << host << " of " << other;
        if (there) {
          EXPECT_EQ(net.incarnation(host, other), running[other]);
        }
      }
  }
}

}  // namespace
}  // namespace penstock
