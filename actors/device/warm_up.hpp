// The first writes to a device of a new peer, before any client asks: one over every link, so that
// connections, address resolution and key look-ups are paid for beforehand, and a few that measure
// what a write costs. They go to the owner's scratch region, which nobody reads.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transport/packing/write_costs.hpp"
#include "transport/plan/plan.hpp"

namespace penstock {

inline constexpr std::uint64_t kScratchBytes = 256 * 1024;
/// No client can ask for this name: a colon is no letter of one.
inline std::string scratch_of(const std::string& device) { return "scratch:" + device; }

class WarmUp {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  struct Step {
    std::shared_ptr<const Plan> plan;
    std::size_t link = 0;  // over which of the links to the device
  };

  /// `costs`: what to start from.
  explicit WarmUp(WriteCosts costs) : costs_(costs) { shortest_.fill(Nanoseconds::max()); }

  /// What to write next; nothing at the end.
  std::optional<Step> next() const;
  /// It took so long from the first write to the last completion. `links`: how many there are.
  void done(std::size_t links, Nanoseconds elapsed);
  bool measured() const { return round_ == kRounds; }
  /// Of a write to the device, once measured(). The shortest of the rounds counts: whatever else
  /// the machine did made the others longer.
  WriteCosts costs() const;

 private:
  static constexpr std::size_t kRounds = 3;
  static constexpr std::size_t kLengths = WriteCosts::kLengths.size();

  WriteCosts costs_;
  std::size_t touched_ = 0;  // links
  std::size_t links_ = 1;    // known after the first step
  std::size_t round_ = 0;
  std::size_t length_ = 0;  // of WriteCosts::kLengths, in this round
  std::array<Nanoseconds, kLengths> shortest_;
};

}  // namespace penstock
