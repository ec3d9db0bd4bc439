#include "actors/membership/gossip_socket.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using namespace std::chrono_literals;

/// A node with a real socket; waits for what its membership says.
class Node {
 public:
  Node(std::string name, Incarnation incarnation, std::string bind,
       std::vector<std::string> knocks_at, std::string advertise = "") {
    GossipSocket::Setup setup;
    setup.bind = std::move(bind);
    setup.advertise = std::move(advertise);
    setup.self.node = std::move(name);
    setup.self.incarnation = incarnation;
    setup.self.cards = {{"numa0", 0, "lo", FabricAddress(16)}};
    setup.options.seeds = std::move(knocks_at);
    setup.changed = [this](const MemberChange& change) {
      const std::lock_guard lock(mutex_);
      changes_.push_back(change);
      condition_.notify_all();
    };
    auto started = GossipSocket::start(std::move(setup));
    if (started)
      socket_ = std::move(*started);
    else
      error = started.error();
  }
  // Before what the callback uses.
  ~Node() { socket_.reset(); }

  GossipSocket& operator*() { return *socket_; }
  GossipSocket* operator->() { return socket_.get(); }

  /// True once the member's newest change is this one.
  bool sees(const std::string& node, MemberState state, Incarnation incarnation) {
    std::unique_lock lock(mutex_);
    return condition_.wait_for(lock, 20s, [&] {
      for (auto change = changes_.rbegin(); change != changes_.rend(); ++change)
        if (change->record.node == node)
          return change->state == state && change->record.incarnation == incarnation;
      return false;
    });
  }
  bool ever_dead() {
    const std::lock_guard lock(mutex_);
    return std::any_of(changes_.begin(), changes_.end(),
                       [](const MemberChange& c) { return c.state == MemberState::kDead; });
  }

  Error error;

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  std::vector<MemberChange> changes_;
  std::unique_ptr<GossipSocket> socket_;
};

constexpr const char* kAnyPort = "tcp://127.0.0.1:*";

TEST(GossipSocket, ThreeNodesFindEachOtherOverRealSockets) {
  Node a("a", 1, kAnyPort, {});
  const std::string seed = a->self().gossip_endpoint;
  Node b("b", 2, kAnyPort, {seed});
  Node c("c", 3, kAnyPort, {seed, b->self().gossip_endpoint});
  EXPECT_TRUE(a.sees("b", MemberState::kAlive, 2));
  EXPECT_TRUE(a.sees("c", MemberState::kAlive, 3));
  EXPECT_TRUE(b.sees("a", MemberState::kAlive, 1));
  EXPECT_TRUE(b.sees("c", MemberState::kAlive, 3));
  EXPECT_TRUE(c.sees("a", MemberState::kAlive, 1));
  EXPECT_TRUE(c.sees("b", MemberState::kAlive, 2));
  EXPECT_EQ(a->members().size(), 2u);
}

TEST(GossipSocket, FiveNodesFindEachOtherAndKnowADeath) {
  auto a = std::make_unique<Node>("a", 1, kAnyPort, std::vector<std::string>{});
  const std::vector<std::string> seed = {(*a)->self().gossip_endpoint};
  std::map<std::string, std::unique_ptr<Node>> nodes;
  nodes["a"] = std::move(a);
  for (const char* name : {"b", "c", "d", "e"})
    nodes[name] = std::make_unique<Node>(name, 1, kAnyPort, seed);
  for (auto& [name, node] : nodes)
    for (auto& [other, ignored] : nodes)
      if (name != other) {
        EXPECT_TRUE(node->sees(other, MemberState::kAlive, 1)) << name << other;
      }
  const auto time = [&](const std::string& dead) {
    nodes.erase(dead);  // its connections close
    const auto started = Clock::now();
    for (auto& [name, node] : nodes) EXPECT_TRUE(node->sees(dead, MemberState::kDead, 1));
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started);
  };
  const auto spent = time("e");
  RecordProperty("milliseconds", static_cast<int>(spent.count()));
  EXPECT_LT(spent, 10s);  // a second, on a machine that has time for it
}

TEST(GossipSocket, SeedsMayBeHostNames) {
  Node a("a", 1, kAnyPort, {});
  const std::string& endpoint = a->self().gossip_endpoint;
  Node b("b", 2, kAnyPort,
         {"tcp://localhost" + endpoint.substr(endpoint.rfind(':')), "tcp://no.such.invalid:7500"});
  EXPECT_TRUE(b.sees("a", MemberState::kAlive, 1));
  EXPECT_TRUE(a.sees("b", MemberState::kAlive, 2));
}

TEST(GossipSocket, DrainingRemovingAndLoadReachTheOthers) {
  Node a("a", 1, kAnyPort, {});
  auto b =
      std::make_unique<Node>("b", 2, kAnyPort, std::vector<std::string>{a->self().gossip_endpoint});
  Node c("c", 3, kAnyPort, {a->self().gossip_endpoint});
  ASSERT_TRUE(a.sees("b", MemberState::kAlive, 2));
  ASSERT_TRUE(c.sees("b", MemberState::kAlive, 2));
  (*b)->set_load(7);
  (*b)->drain();
  EXPECT_TRUE(a.sees("b", MemberState::kDraining, 2));
  EXPECT_TRUE(c.sees("b", MemberState::kDraining, 2));
  for (int i = 0; i < 200 && a->members().at(0).load != 7; ++i) std::this_thread::sleep_for(50ms);
  EXPECT_EQ(a->members().at(0).load, 7u);
  EXPECT_EQ(a->remove("b").error().code, ErrorCode::kBusy);
  b = nullptr;
  ASSERT_TRUE(a.sees("b", MemberState::kDead, 2));
  EXPECT_TRUE(a->remove("b"));
  EXPECT_EQ(a->members().at(0).state, MemberState::kLeft);
}

TEST(GossipSocket, LeavingIsToldBeforeTheSocketCloses) {
  Node a("a", 1, kAnyPort, {});
  {
    Node b("b", 2, kAnyPort, {a->self().gossip_endpoint});
    ASSERT_TRUE(a.sees("b", MemberState::kAlive, 2));
    ASSERT_TRUE(b.sees("a", MemberState::kAlive, 1));
    b->leave();
  }
  EXPECT_TRUE(a.sees("b", MemberState::kLeft, 2));
}

TEST(GossipSocket, ARestartAtTheSameEndpointIsKnownAsANewIncarnation) {
  Node a("a", 1, kAnyPort, {});
  std::string endpoint;
  {
    Node b("b", 2, kAnyPort, {a->self().gossip_endpoint});
    endpoint = b->self().gossip_endpoint;
    ASSERT_TRUE(a.sees("b", MemberState::kAlive, 2));
  }
  Node b("b", 3, endpoint, {a->self().gossip_endpoint});
  ASSERT_THAT(b.error.message, IsEmpty());
  EXPECT_TRUE(a.sees("b", MemberState::kAlive, 3));
  EXPECT_TRUE(a.ever_dead());
}

TEST(GossipSocket, AClosedConnectionIsNoticedWithoutWaitingForSilence) {
  Node a("a", 1, kAnyPort, {});
  {
    Node b("b", 2, kAnyPort, {a->self().gossip_endpoint});
    ASSERT_TRUE(a.sees("b", MemberState::kAlive, 2));
    ASSERT_TRUE(b.sees("a", MemberState::kAlive, 1));
    std::this_thread::sleep_for(500ms);  // until they have asked each other
  }
  ASSERT_TRUE(a.sees("b", MemberState::kDead, 2));
  EXPECT_THAT(a->members().at(0).reason, HasSubstr("a connection to it closed"));
}

TEST(GossipSocket, ASuspectThatIsGoneIsFoundDead) {
  Node a("a", 1, kAnyPort, {});
  {
    Node b("b", 2, kAnyPort, {a->self().gossip_endpoint});
    ASSERT_TRUE(a.sees("b", MemberState::kAlive, 2));
  }
  a->suspect("b");
  EXPECT_TRUE(a.sees("b", MemberState::kDead, 2));
}

TEST(GossipSocket, WorksOverIpcToo) {
  const std::string directory =
      testing::TempDir() + "penstock-gossip-" + std::to_string(::getpid());
  Node a("a", 1, "ipc://" + directory + "-a", {});
  Node b("b", 2, "ipc://" + directory + "-b", {a->self().gossip_endpoint});
  EXPECT_TRUE(a.sees("b", MemberState::kAlive, 2));
  EXPECT_TRUE(b.sees("a", MemberState::kAlive, 1));
}

TEST(GossipSocket, AnnouncesWhatItBoundOrWhatItWasTold) {
  Node bound("a", 1, kAnyPort, {});
  EXPECT_THAT(bound->self().gossip_endpoint, StartsWith("tcp://127.0.0.1:"));
  EXPECT_THAT(bound->self().gossip_endpoint, testing::Not(HasSubstr("*")));
  Node told("b", 1, "tcp://0.0.0.0:*", {}, "tcp://127.0.0.1:*");
  EXPECT_THAT(told->self().gossip_endpoint, StartsWith("tcp://127.0.0.1:"));
  EXPECT_THAT(told->self().gossip_endpoint, testing::Not(HasSubstr("*")));
  Node fixed("c", 1, kAnyPort, {}, "tcp://nat.example:7500");
  EXPECT_EQ(fixed->self().gossip_endpoint, "tcp://nat.example:7500");
}

TEST(GossipSocket, BindingEveryInterfaceNeedsSomethingToAdvertise) {
  Node node("a", 1, "tcp://0.0.0.0:*", {});
  EXPECT_EQ(node.error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(node.error.message, HasSubstr("advertise"));
}

TEST(GossipSocket, AnEndpointInUseIsAnErrorThatNamesIt) {
  Node first("a", 1, kAnyPort, {});
  Node second("b", 1, first->self().gossip_endpoint, {});
  EXPECT_EQ(second.error.code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(second.error.message, "gossip.bind: cannot bind " + first->self().gossip_endpoint +
                                      ": the address is in use; stop what listens there or choose "
                                      "another");
  Node elsewhere("b", 1, "tcp://192.0.2.1:7412", {});
  EXPECT_THAT(elsewhere.error.message, HasSubstr("this machine has no such address"));
  Node nonsense("c", 1, "nonsense", {});
  EXPECT_EQ(nonsense.error.code, ErrorCode::kInvalidArgument);
}

TEST(GossipSocket, ARecordThatOthersWouldRefuseIsRefusedHere) {
  Node unnamed("", 1, kAnyPort, {});
  EXPECT_EQ(unnamed.error.code, ErrorCode::kInvalidArgument);
}

TEST(GossipSocket, StopsWithinASecondWithUnreachableEndpointsConfigured) {
  const auto started = Clock::now();
  {
    // Nobody there, an address that swallows packets, and no endpoint at all.
    Node a("a", 1, kAnyPort, {"tcp://127.0.0.1:1", "tcp://192.0.2.1:7500", "not an endpoint"});
    ASSERT_THAT(a.error.message, IsEmpty());
    std::this_thread::sleep_for(200ms);
    a->leave();
  }
  EXPECT_LT(Clock::now() - started, 10s);  // a second, on a machine that has time for it
}

}  // namespace
}  // namespace penstock
