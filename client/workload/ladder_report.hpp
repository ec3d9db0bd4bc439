// What each optimisation gained: a table, JSON and a chart of the same work done with one more of
// them switched on at every step.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/workload/statistics.hpp"

namespace penstock::workload {

/// One page size at one step.
struct LadderCell {
  std::uint64_t page_bytes = 0;
  Spread gbps;
  Spread gain;  // of the rounds: this step's speed by that of the step before; 0: the first step
  double cpu_s_per_gb = 0;
};

struct LadderRung {
  std::string name;               // "operation queue"
  std::string change;             // what was switched on, in words
  std::string skipped;            // why it could not be; then the rest is empty
  double first_us = 0;            // median of the first small transfer of a fresh pair of services
  std::vector<LadderCell> cells;  // one per page size, in the report's order
};

struct LadderReport {
  std::string provider;
  std::uint64_t round_bytes = 0;
  std::size_t rounds = 0;
  std::vector<std::uint64_t> page_bytes;
  std::vector<LadderRung> rungs;
  bool verified = false;
};

/// `gbps[step][round]` of one page size, an empty step: skipped. Cells with their gains over the
/// nearest step before that was not; a cell of zeros for skipped ones.
std::vector<LadderCell> ladder_cells(std::uint64_t page_bytes,
                                     const std::vector<std::vector<double>>& gbps);

/// Rows of text, the header first, all of the same length.
std::vector<std::vector<std::string>> ladder_table(const LadderReport& report);

nlohmann::json to_json(const LadderReport& report);

/// A chart in SVG that is readable on light and dark ground: a bar for each step and page size, as
/// long as its median, with the spread as a line.
std::string ladder_svg(const LadderReport& report);

}  // namespace penstock::workload
