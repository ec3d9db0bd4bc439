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

  /// Runs `action` at now() + `after`.
  void after(Duration after, std::function<void()> action);

  std::mt19937_64& random() { return random_; }
  /// True with this probability.
  bool chance(double probability);
  std::uint64_t below(std::uint64_t limit);  // uniform in [0, limit)

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

  std::uint64_t new_endpoint(SimNic* nic, Role role);
  void run_until(Time limit);

  std::mt19937_64 random_;
  Time now_{std::chrono::hours(1)};
  std::uint64_t next_number_ = 1;
  std::multimap<Time, std::function<void()>> due_;  // equal times run in the order of insertion
  std::map<std::uint64_t, Memory> memory_;          // by key
  std::map<std::uint64_t, Endpoint> endpoints_;     // by address
};

}  // namespace penstock::sim
