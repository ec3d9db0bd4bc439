// Nodes with Swim on a simulated clock, over a network that loses, doubles, delays and shuffles
// frames as one seed decides. Frames really are encoded and decoded.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "actors/membership/swim.hpp"

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
  Swim& start(const std::string& host, Incarnation incarnation, std::vector<std::string> seeds,
              std::string node = "") {
    Swim::Options own = options;
    for (const std::string& other : seeds) own.seeds.push_back(endpoint_of(other));
    own.seed = random_();
    Swim::Network network;
    network.send = [this, host](const std::string& endpoint, const GossipFrame& frame) {
      auto bytes = encode(frame);
      const bool bulk = frame.body.index() > GossipBody(Nack{}).index();
      if (!bulk) largest_news = std::max(largest_news, bytes.size());
      send(host, endpoint, std::move(bytes));
    };
    nodes_[host] = std::make_unique<Swim>(record(node.empty() ? host : node, incarnation, host),
                                          own, std::move(network));
    return *nodes_[host];
  }
  /// As kill -9: says nothing.
  void kill(const std::string& host) { nodes_.erase(host); }
  /// As SIGSTOP until run on: hears nothing, does nothing, but what is sent to it waits.
  void stop(const std::string& host) { stopped_.push_back(host); }
  void go_on(const std::string& host) { std::erase(stopped_, host); }
  Swim& operator[](const std::string& host) { return *nodes_.at(host); }
  bool runs(const std::string& host) const { return nodes_.contains(host); }
  /// No frame passes between the two hosts, either way, until heal().
  void cut(const std::string& a, const std::string& b) { cuts_.push_back({a, b}); }
  void heal() { cuts_.clear(); }

  void run(Clock::duration time) {
    const TimePoint end = now + time;
    for (TimePoint next = next_event(); next <= end; next = next_event()) {
      now = std::max(now, next);
      deliver_due();
      for (auto& [host, node] : nodes_)
        if (!stopped(host) && node->next_tick() <= now) node->tick(now);
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
  Swim::Options options;
  std::uint64_t frames = 0;
  std::uint64_t frame_bytes = 0;
  std::size_t largest_news = 0;  // of frames that carry rumours beside what they are for

 private:
  struct Frame {
    std::string endpoint;
    std::vector<std::byte> bytes;
  };

  bool stopped(const std::string& host) const {
    return std::find(stopped_.begin(), stopped_.end(), host) != stopped_.end();
  }

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
      for (auto& [host, node] : nodes_) {
        if (endpoint_of(host) != frame.endpoint) continue;
        if (stopped(host))
          under_way_.emplace(now + 1ms, frame);
        else
          node->receive(std::span<const std::byte>(frame.bytes), now);
      }
    }
  }

  TimePoint next_event() {
    TimePoint next = under_way_.empty() ? TimePoint::max() : under_way_.begin()->first;
    for (auto& [host, node] : nodes_)
      if (!stopped(host)) next = std::min(next, node->next_tick());
    return next;
  }

  std::mt19937_64 random_;
  std::map<std::string, std::unique_ptr<Swim>> nodes_;
  std::vector<std::string> stopped_;
  std::multimap<TimePoint, Frame> under_way_;
  std::vector<std::pair<std::string, std::string>> cuts_;
};

/// "b/20 alive" for each change since the last call.
inline std::vector<std::string> said(Swim& membership) {
  std::vector<std::string> result;
  for (const MemberChange& change : membership.take_changes())
    result.push_back(fmt::format("{}/{} {}", change.record.node, change.record.incarnation,
                                 name_of(change.state)));
  return result;
}

/// A frame as the node itself would send it.
inline GossipFrame frame_of(const std::string& node, Incarnation incarnation,
                            const std::string& host, GossipBody body = Gossip{}) {
  const RecordPtr record = *store_record(encode(SimulatedNetwork::record(node, incarnation, host)));
  GossipFrame frame;
  frame.sender.who =
      make_identity(node, incarnation, SimulatedNetwork::endpoint_of(host), record->digest);
  frame.body = std::move(body);
  return frame;
}

}  // namespace penstock
