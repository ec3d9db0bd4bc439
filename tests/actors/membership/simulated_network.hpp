// Nodes with static membership on a simulated clock, over a network that loses, doubles, delays and
// shuffles frames as one seed decides.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "actors/membership/static_membership.hpp"

namespace penstock {

using namespace std::chrono_literals;

class SimulatedNetwork {
 public:
  struct Faults {
    double lost = 0;
    double doubled = 0;
    Milliseconds delay_most{1};
  };

  explicit SimulatedNetwork(std::uint64_t seed) : random_(seed) {}

  static std::string endpoint_of(const std::string& host) { return "tcp://" + host + ":7500"; }

  static MemberRecord record(const std::string& node, Incarnation incarnation,
                             const std::string& host) {
    MemberRecord record;
    record.node = node;
    record.incarnation = incarnation;
    record.gossip_endpoint = endpoint_of(host);
    record.cards = {{"numa0", 0, "lo", FabricAddress(16)}};
    return record;
  }

  /// Starts (or restarts) what runs on `host`: a node named like it unless told otherwise.
  StaticMembership& start(const std::string& host, Incarnation incarnation,
                          std::vector<std::string> knocks_at, std::string node = "") {
    StaticMembership::Options options;
    for (const std::string& other : knocks_at) options.endpoints.push_back(endpoint_of(other));
    options.seed = random_();
    nodes_[host] = std::make_unique<StaticMembership>(
        record(node.empty() ? host : node, incarnation, host), options,
        StaticMembership::Network{
            [this, host](const std::string& endpoint, std::vector<std::byte> f) {
              send(host, endpoint, std::move(f));
            }});
    return *nodes_[host];
  }
  /// As kill -9: says nothing.
  void kill(const std::string& host) { nodes_.erase(host); }
  StaticMembership& operator[](const std::string& host) { return *nodes_.at(host); }
  /// No frame passes between the two hosts, either way, until heal().
  void cut(const std::string& a, const std::string& b) { cuts_.push_back({a, b}); }
  void heal() { cuts_.clear(); }

  void run(Clock::duration time) {
    const TimePoint end = now + time;
    for (TimePoint next = next_event(); next <= end; next = next_event()) {
      now = std::max(now, next);
      deliver_due();
      for (auto& [host, node] : nodes_)
        if (node->next_tick() <= now) node->tick(now);
    }
    now = end;
  }

  MemberState state(const std::string& host, const std::string& node) {
    for (const MemberChange& member : nodes_.at(host)->members())
      if (member.record.node == node) return member.state;
    return MemberState::kDead;
  }
  Incarnation incarnation(const std::string& host, const std::string& node) {
    for (const MemberChange& member : nodes_.at(host)->members())
      if (member.record.node == node) return member.record.incarnation;
    return 0;
  }

  TimePoint now = TimePoint(1h);
  Faults faults;
  std::uint64_t frames = 0;
  std::uint64_t frame_bytes = 0;

 private:
  struct Frame {
    std::string endpoint;
    std::vector<std::byte> bytes;
  };

  void send(const std::string& from, const std::string& endpoint, std::vector<std::byte> bytes) {
    ++frames;
    frame_bytes += bytes.size();
    for (const auto& [a, b] : cuts_)
      if ((from == a && endpoint == endpoint_of(b)) || (from == b && endpoint == endpoint_of(a)))
        return;
    std::bernoulli_distribution lost(faults.lost);
    std::bernoulli_distribution doubled(faults.doubled);
    std::uniform_int_distribution<std::int64_t> delay(1, faults.delay_most.count() * 1000);
    if (lost(random_)) return;
    for (int copies = doubled(random_) ? 2 : 1; copies > 0; --copies)
      under_way_.emplace(now + std::chrono::microseconds(delay(random_)), Frame{endpoint, bytes});
  }

  void deliver_due() {
    while (!under_way_.empty() && under_way_.begin()->first <= now) {
      const Frame frame = std::move(under_way_.begin()->second);
      under_way_.erase(under_way_.begin());
      for (auto& [host, node] : nodes_)
        if (endpoint_of(host) == frame.endpoint) node->receive(frame.bytes, now);
    }
  }

  TimePoint next_event() {
    TimePoint next = under_way_.empty() ? TimePoint::max() : under_way_.begin()->first;
    for (auto& [host, node] : nodes_) next = std::min(next, node->next_tick());
    return next;
  }

  std::mt19937_64 random_;
  std::map<std::string, std::unique_ptr<StaticMembership>> nodes_;
  std::multimap<TimePoint, Frame> under_way_;
  std::vector<std::pair<std::string, std::string>> cuts_;
};

}  // namespace penstock
