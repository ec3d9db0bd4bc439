// The other members as one service sees them, and which of them take the traffic's transfers. Any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace penstock::workload {

class MemberView {
 public:
  /// `nodes`: of the nodes reply; empty when the service is away. True when something changed.
  bool update(const nlohmann::json& nodes);
  /// [{"node","state","incarnation"}], as in the last update.
  nlohmann::json shown() const;

  /// A connected member that was proven, with its incarnation; none when there is none.
  std::optional<std::pair<std::string, std::uint64_t>> pick(std::mt19937_64& random) const;
  /// Connected members that were not proven yet, or doubted since.
  std::vector<std::string> unproven() const;
  /// It takes transfers.
  void proven(const std::string& name) { set_ready(name, true); }
  /// It did not take one: proven again before it is picked.
  void doubt(const std::string& name) { set_ready(name, false); }
  /// Whether it is connected under this incarnation.
  bool has(const std::string& name, std::uint64_t incarnation) const;
  /// True once for each incarnation.
  bool first(const std::string& name, std::uint64_t incarnation);

 private:
  struct Member {
    std::uint64_t incarnation = 0;
    bool ready = false;
  };
  void set_ready(const std::string& name, bool ready);

  mutable std::mutex mutex_;
  std::map<std::string, Member> members_;  // connected ones
  std::set<std::pair<std::string, std::uint64_t>> seen_;
  nlohmann::json shown_;
};

}  // namespace penstock::workload
