#include "client/workload/ladder_report.hpp"

#include <fmt/format.h>

#include "client/cli/quantity.hpp"

namespace penstock::workload {

std::vector<LadderCell> ladder_cells(std::uint64_t page_bytes,
                                     const std::vector<std::vector<double>>& gbps) {
  std::vector<LadderCell> cells;
  const std::vector<double>* before = nullptr;
  for (const auto& rounds : gbps) {
    LadderCell cell;
    cell.page_bytes = page_bytes;
    if (!rounds.empty()) {
      cell.gbps = spread_of(rounds);
      std::vector<double> gains;
      for (std::size_t i = 0; before != nullptr && i < rounds.size() && i < before->size(); ++i) {
        if ((*before)[i] > 0) gains.push_back(rounds[i] / (*before)[i]);
      }
      cell.gain = spread_of(gains);
      before = &rounds;
    }
    cells.push_back(cell);
  }
  return cells;
}

std::vector<std::vector<std::string>> ladder_table(const LadderReport& report) {
  std::vector<std::vector<std::string>> rows{{"step", "first us"}};
  for (auto page_bytes : report.page_bytes) {
    auto page = cli::format_bytes(page_bytes);
    for (const char* column : {"Gbps", "min-max", "gain", "CPU s/GB"}) {
      rows[0].push_back(fmt::format("{} {}", page, column));
    }
  }
  for (const auto& rung : report.rungs) {
    auto& row = rows.emplace_back(std::vector<std::string>{rung.name});
    row.push_back(rung.skipped.empty() ? fmt::format("{:.0f}", rung.first_us) : "-");
    if (!rung.skipped.empty()) {
      row.resize(rows[0].size(), "-");
      continue;
    }
    for (const auto& cell : rung.cells) {
      row.push_back(fmt::format("{:.2f}", cell.gbps.median));
      row.push_back(fmt::format("{:.2f}-{:.2f}", cell.gbps.min, cell.gbps.max));
      row.push_back(cell.gain.median > 0 ? fmt::format("{:.2f}", cell.gain.median) : "-");
      row.push_back(fmt::format("{:.3f}", cell.cpu_s_per_gb));
    }
  }
  return rows;
}

nlohmann::json to_json(const LadderReport& report) {
  auto steps = nlohmann::json::array();
  for (const auto& rung : report.rungs) {
    nlohmann::json step{{"name", rung.name}, {"change", rung.change}};
    if (!rung.skipped.empty()) {
      step["skipped"] = rung.skipped;
    } else {
      step["first_us"] = rung.first_us;
      step["pages"] = nlohmann::json::array();
    }
    for (const auto& cell : rung.cells) {
      step["pages"].push_back({{"page_bytes", cell.page_bytes},
                               {"gbps", cell.gbps.median},
                               {"gbps_min", cell.gbps.min},
                               {"gbps_max", cell.gbps.max},
                               {"gain", cell.gain.median},
                               {"gain_min", cell.gain.min},
                               {"gain_max", cell.gain.max},
                               {"cpu_s_per_gb", cell.cpu_s_per_gb}});
    }
    steps.push_back(std::move(step));
  }
  return {{"provider", report.provider}, {"round_bytes", report.round_bytes},
          {"rounds", report.rounds},     {"page_bytes", report.page_bytes},
          {"verified", report.verified}, {"steps", std::move(steps)}};
}

}  // namespace penstock::workload
