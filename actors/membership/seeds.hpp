// The endpoints that the configuration names: knocked at until somebody who lives answers there,
// and again when that one has ended. A seed may be a name with many addresses (a headless service),
// and other ones each time it is looked up.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "actors/clock.hpp"

namespace penstock {

class Seeds {
 public:
  Seeds(const std::vector<std::string>& seeds, std::string own_endpoint, std::uint64_t seed);

  /// Whether somebody of this name, or at this endpoint, lives.
  struct Alive {
    std::function<bool(const std::string& node)> node;
    std::function<bool(const std::string& endpoint)> endpoint;
  };
  /// Seeds to knock at now, each of which has to be looked up first.
  std::vector<std::string> due(const Alive& alive, TimePoint now);
  TimePoint next(const Alive& alive) const;
  /// One of them, whoever answers there, so that a cluster that fell apart finds itself again.
  /// Null: there are none but ourselves.
  const std::string* any();

  /// What a seed's name stands for now: where to knock, a few of them.
  std::vector<std::string> addresses(std::string_view seed, std::vector<std::string> found);
  /// A knock at this endpoint was answered.
  void answered(const std::string& endpoint, const std::string& node);
  /// It was our own endpoint under another spelling.
  void answered_by_ourselves(const std::string& endpoint);
  void ended(const std::string& node, TimePoint now);

 private:
  struct Seed {
    std::string name;
    std::vector<std::string> addresses;
    std::string node;  // who answered last; "" nobody yet
    bool ours = false;
    TimePoint next = TimePoint::min();
    Milliseconds interval{0};
  };

  static bool quiet(const Seed& seed, const Alive& alive);

  std::string own_endpoint_;
  std::vector<std::string> own_addresses_;
  std::vector<Seed> seeds_;
  std::mt19937_64 random_;
};

}  // namespace penstock
