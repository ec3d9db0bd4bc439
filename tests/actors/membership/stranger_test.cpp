// Gossip with the cluster's key: members find each other, strangers are neither heard nor told.
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <functional>
#include <sstream>
#include <thread>
#include <zmq.hpp>

#include "actors/membership/gossip_socket.hpp"
#include "tests/eventually.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<GossipSocket> node(const std::string& name, Incarnation incarnation,
                                   std::optional<KeyPair> keys, std::vector<std::string> seeds = {},
                                   std::uint32_t audit_lines_per_s = 10) {
  GossipSocket::Setup setup;
  setup.bind = "tcp://127.0.0.1:*";
  setup.self.node = name;
  setup.self.incarnation = incarnation;
  setup.self.cards = {{"numa0", 0, "lo", FabricAddress(16)}};
  setup.self.fabric_key = std::vector<std::byte>(32, std::byte{7});
  setup.options.seeds = std::move(seeds);
  setup.keys = keys;
  setup.audit_lines_per_s = audit_lines_per_s;
  auto started = GossipSocket::start(std::move(setup));
  EXPECT_TRUE(started) << started.error().message;
  return std::move(*started);
}

bool sees(GossipSocket& gossip, const std::string& name) {
  for (const MemberChange& member : gossip.members())
    if (member.record.node == name && member.state == MemberState::kAlive) return true;
  return false;
}

TEST(GossipWithTheClustersKey, BringsMembersTogetherAndTheirSealKeysWithThem) {
  const KeyPair cluster = make_key_pair();
  const auto a = node("a", 100, cluster);
  const auto b = node("b", 200, cluster, {a->self().gossip_endpoint});
  EXPECT_TRUE(eventually([&] { return sees(*a, "b") && sees(*b, "a"); }));
  EXPECT_EQ(a->members().at(0).record.fabric_key, std::vector<std::byte>(32, std::byte{7}));
  EXPECT_EQ(a->refused(), 0u);
}

TEST(GossipWithTheClustersKey, RefusesAndCountsStrangers) {
  const auto a = node("a", 100, make_key_pair());
  const auto with_another = node("x", 300, make_key_pair(), {a->self().gossip_endpoint});
  EXPECT_TRUE(eventually([&] { return a->refused() >= 1; }));
  const auto before = a->refused();
  const auto without = node("y", 400, std::nullopt, {a->self().gossip_endpoint});
  EXPECT_TRUE(eventually([&] { return a->refused() > before; }));
  EXPECT_TRUE(a->members().empty());
  EXPECT_TRUE(with_another->members().empty());
  EXPECT_TRUE(without->members().empty());
}

TEST(GossipWithTheClustersKey, AuditsNoMoreThanItWasTold) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "captured", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  {
    const auto a = node("a", 100, make_key_pair(), {}, 0);
    const auto x = node("x", 300, make_key_pair(), {a->self().gossip_endpoint}, 0);
    EXPECT_TRUE(eventually([&] { return a->refused() >= 1; }));
  }
  const std::string with_none = log.str();
  spdlog::set_default_logger(before);
  EXPECT_EQ(with_none.find("audit:"), std::string::npos) << with_none;
}

TEST(GossipWithTheClustersKey, IsNotSpokenToThoseWithoutIt) {
  const auto plain = node("y", 400, std::nullopt);
  const auto a = node("a", 100, make_key_pair(), {plain->self().gossip_endpoint});
  EXPECT_TRUE(eventually([&] { return plain->refused() >= 1; }));
  EXPECT_TRUE(plain->members().empty());
  EXPECT_TRUE(a->members().empty());
}

}  // namespace
}  // namespace penstock
