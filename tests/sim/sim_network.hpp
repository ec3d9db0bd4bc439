// A network of simulated cards on a virtual clock. One seed decides everything, so that a failure
// replays. Not thread-safe: one test drives it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <span>

#include "transport/fabric/nic.hpp"

namespace penstock::sim {

class SimNic;

class SimNetwork {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  explicit SimNetwork(std::uint64_t seed) : random_(seed) {}

  Time now() const { return now_; }
  /// Runs everything that is due until then.
  void advance(Duration by);
  /// Goes to the next thing that is due and runs it; false when nothing is.
  bool advance_to_next();

  /// Nothing of what is due will run: whatever it refers to may go.
  void forget_everything() { due_.clear(); }

  /// Runs `action` at now() + `after`.
  void after(Duration after, std::function<void()> action);

  std::mt19937_64& random() { return random_; }
  /// True with this probability.
  bool chance(double probability);
  std::uint64_t below(std::uint64_t limit);  // uniform in [0, limit)

  /// Hosts (SimNicOptions::host) between which nothing passes now: what is under way waits.
  std::function<bool(std::uint32_t, std::uint32_t)> apart{};
  bool passes(std::uint32_t from, std::uint32_t to) const { return !apart || !apart(from, to); }

  /// Of all that has run so far and when: two runs of one seed have the same at the same time.
  std::uint64_t digest() const { return digest_; }
  void mix(std::uint64_t value) { digest_ = (digest_ ^ value) * 0x9e3779b97f4a7c15u >> 1; }

 private:
  friend class SimNic;

  struct Memory {
    std::span<std::byte> bytes;
    const SimNic* owner;
  };
  enum class Role : unsigned char { kControl, kInbound };
  struct Endpoint {
    SimNic* nic;
    Role role;
  };

  /// At this address, or at a new one (0). Whoever had the address before has it no more.
  std::uint64_t new_endpoint(SimNic* nic, Role role, std::uint64_t address = 0);
  void run_until(Time limit);

  std::mt19937_64 random_;
  Time now_{std::chrono::hours(1)};
  std::uint64_t next_number_ = 1;
  std::uint64_t digest_ = 0x243f6a8885a308d3u;
  std::multimap<Time, std::function<void()>> due_;  // equal times run in the order of insertion
  std::map<std::uint64_t, Memory> memory_;          // by key
  std::map<std::uint64_t, Endpoint> endpoints_;     // by address
};

}  // namespace penstock::sim
