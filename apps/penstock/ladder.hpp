// penstock bench --ladder: the same work with one more optimisation at every step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/workload/ladder_report.hpp"

namespace penstock::app {

struct LadderOptions {
  std::string provider = "tcp";
  std::vector<std::uint64_t> page_bytes{65536, 4096};
  std::uint64_t round_bytes = 256ULL << 20;
  std::uint64_t region_bytes = 1ULL << 30;
  std::size_t rounds = 5;
  std::vector<std::string> settings;  // of all steps, over their own
};

/// Each round starts a fresh pair of services per step, in turns, so that a machine that changes
/// its speed changes all steps, and the first transfer of each pair is a first one. Throws Exit
/// kFailed.
workload::LadderReport climb(const LadderOptions& options);

void print_ladder(const workload::LadderReport& report);

}  // namespace penstock::app
