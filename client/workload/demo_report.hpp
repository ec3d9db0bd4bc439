// What the demonstration moved and how fast, beside the bare libfabric loop in the same run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/workload/measurement.hpp"
#include "client/workload/statistics.hpp"

namespace penstock::workload {

struct CardShare {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t writes = 0;
};

/// One direction, both directions running at once: a pair of measurements per round.
struct DemoDirection {
  std::string from;
  std::string to;
  std::vector<MeasuredPair> rounds;
  std::vector<CardShare> cards;  // of all rounds together
};

struct DemoReport {
  std::uint64_t region_bytes = 0;
  std::uint64_t page_bytes = 0;
  std::string provider;
  std::vector<DemoDirection> directions;
  std::vector<MeasuredPair> together;  // all directions as one, per round
  std::uint64_t small_bytes = 0;
  Latency small_us;  // of a small transfer, asked to told
  std::uint64_t verified_pages = 0;
  std::uint64_t different_pages = 0;
  std::uint64_t expected_pages = 0;

  bool verified() const {
    return expected_pages > 0 && verified_pages == expected_pages && different_pages == 0;
  }
};

/// "verified", "gbps" and "ratio" of all directions together, and the rest in detail.
nlohmann::json to_json(const DemoReport& report);

}  // namespace penstock::workload
