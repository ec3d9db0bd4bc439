// A cluster of the real membership on a virtual clock: thousands of nodes in one thread, a network
// that delays and loses frames, nodes that die, come back and stand still. One seed decides
// everything.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "actors/membership/swim.hpp"

namespace penstock {

class Cluster {
 public:
  using Duration = Clock::duration;
  struct Options {
    std::size_t nodes = 100;
    std::uint64_t seed = 1;
    double loss = 0;  // of each frame
    std::chrono::microseconds latency_least{100};
    std::chrono::microseconds latency_most{2000};
    /// Nodes that stand still for 0.5 to 3 s, run for 0.2 to 1 s, stand still again ...
    std::size_t slow_nodes = 0;
    Swim::Options swim;
  };
  struct Traffic {
    std::uint64_t frames = 0;
    double bytes = 0;  // one frame in sixteen is really encoded
  };

  explicit Cluster(Options options);

  void run(Duration time);
  TimePoint now() const { return now_; }

  /// As kill -9.
  void kill(std::size_t node);
  /// A new incarnation, which knows nobody but `seed_node`.
  void start(std::size_t node, std::size_t seed_node);
  void leave(std::size_t node) { nodes_[node].swim->leave(now_); }
  bool runs(std::size_t node) const { return nodes_[node].swim != nullptr; }
  bool slow(std::size_t node) const { return node < options_.slow_nodes; }
  Incarnation incarnation(std::size_t node) const { return nodes_[node].incarnation; }
  const Swim& swim(std::size_t node) const { return *nodes_[node].swim; }

  /// Called for every change that a node tells: who says what of whom.
  std::function<void(std::size_t observer, std::size_t subject, const MemberChange&)> changed;

  /// Since the last call.
  Traffic take_traffic() { return std::exchange(traffic_, {}); }
  std::uint64_t events() const { return events_; }

 private:
  struct Node {
    std::unique_ptr<Swim> swim;
    Incarnation incarnation = 0;
    TimePoint tick_at = TimePoint::max();
    TimePoint stands_still_until;
    TimePoint turns_at = TimePoint::max();  // slow nodes: when it stands still again
  };
  struct Event {
    TimePoint at;
    std::uint64_t sequence;  // ties are settled by it: the same on every run
    std::uint32_t node;
    std::uint32_t frame;  // kTick: none
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : sequence > other.sequence;
    }
  };
  static constexpr std::uint32_t kTick = ~std::uint32_t{0};

  static MemberRecord record_of(std::size_t node, Incarnation incarnation);
  void make(std::size_t node, std::vector<std::string> seeds);
  void introduce_everybody();
  void send(const std::string& endpoint, GossipFrame frame);
  void handle(const Event& event);
  /// True: it stands still now, and the event comes later.
  bool postponed(const Event& event);
  void after(std::size_t node);
  void push(TimePoint at, std::uint32_t node, std::uint32_t frame);
  Duration between(Duration least, Duration most);

  Options options_;
  std::mt19937_64 random_;
  TimePoint now_{std::chrono::hours(1)};
  std::vector<Node> nodes_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::vector<GossipFrame> frames_;
  std::vector<std::uint32_t> free_frames_;
  std::uint64_t sequence_ = 0;
  std::uint64_t events_ = 0;
  Traffic traffic_;
};

}  // namespace penstock
