// The gossip of one simulation: encoded frames between endpoints that come late, in another order,
// twice or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "actors/membership/gossip_frame.hpp"
#include "tests/sim/sim_network.hpp"

namespace penstock::sim {

class GossipNet {
 public:
  struct Options {
    std::chrono::nanoseconds latency_least = std::chrono::microseconds(50);
    std::chrono::nanoseconds latency_most = std::chrono::milliseconds(2);
    /// Some frames are held up for so long at most, behind later ones.
    double straggler_chance = 0;
    std::chrono::nanoseconds straggles_most = std::chrono::milliseconds(1500);
    double duplicate_chance = 0;
    std::function<double(std::uint32_t from, std::uint32_t to)> loss{};
  };
  using Receive = std::function<void(const std::vector<std::byte>&)>;

  GossipNet(SimNetwork& network, Options options)
      : network_(network), options_(std::move(options)) {}

  /// Whoever listened there before does so no more.
  void listen(const std::string& endpoint, std::uint32_t host, Receive receive) {
    listeners_[endpoint] = {host, std::move(receive)};
  }
  void close(const std::string& endpoint) { listeners_.erase(endpoint); }

  void send(std::uint32_t from, const std::string& endpoint, const GossipFrame& frame) {
    send(from, endpoint, encode(frame));
  }
  void send(std::uint32_t from, const std::string& endpoint, std::vector<std::byte> bytes) {
    const auto to = listeners_.find(endpoint);
    if (to != listeners_.end() && options_.loss &&
        network_.chance(options_.loss(from, to->second.host)))
      return;
    if (options_.duplicate_chance > 0 && network_.chance(options_.duplicate_chance))
      deliver(from, endpoint, bytes);
    deliver(from, endpoint, std::move(bytes));
  }

 private:
  struct Listener {
    std::uint32_t host;
    Receive receive;
  };

  void deliver(std::uint32_t from, const std::string& endpoint, std::vector<std::byte> bytes) {
    auto takes = options_.latency_least + some(options_.latency_most - options_.latency_least);
    if (options_.straggler_chance > 0 && network_.chance(options_.straggler_chance))
      takes += some(options_.straggles_most);
    network_.after(takes, [this, from, endpoint, bytes = std::move(bytes)] {
      const auto to = listeners_.find(endpoint);
      if (to != listeners_.end() && network_.passes(from, to->second.host))
        to->second.receive(bytes);
    });
  }
  std::chrono::nanoseconds some(std::chrono::nanoseconds most) {
    return std::chrono::nanoseconds(network_.below(static_cast<std::uint64_t>(most.count()) + 1));
  }

  SimNetwork& network_;
  Options options_;
  std::map<std::string, Listener> listeners_;
};

}  // namespace penstock::sim
