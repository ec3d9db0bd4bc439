// What a replay did, as people and scripts read it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/workload/statistics.hpp"

namespace penstock::workload {

/// From a hand-over's submission until its pages had landed.
struct BusyInterval {
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
};

/// How long at least one interval was open.
double busy_seconds(std::vector<BusyInterval> intervals);

struct ReplayReport {
  std::uint64_t requests = 0;
  std::uint64_t requests_without_move = 0;  // the decoder had every block
  std::uint64_t blocks = 0;
  std::uint64_t decoder_hits = 0;  // blocks that the decoder had, or that were on their way to it
  std::uint64_t prefill_hits = 0;  // blocks that the prefill node had not to compute again
  std::uint64_t decoder_evictions = 0;
  std::uint64_t pages = 0;  // moved, each plane's counted
  std::uint64_t page_bytes = 0;
  std::uint64_t bytes = 0;
  std::uint64_t writes = 0;
  std::map<std::string, std::uint64_t> paths;  // transfers by the way that they took
  double wall_s = 0;                           // the whole replay, with verification
  double busy_s = 0;                           // with at least one transfer under way
  Latency hand_over_ms;                        // of the requests that moved or waited for something
  Latency queueing_ms;  // of all requests, before their hand-over was submitted
  double queueing_s = 0;
  bool verify = true;
  std::uint64_t verified_pages = 0;
  std::uint64_t different_pages = 0;
  std::vector<std::string> differences;  // the first few, in words

  /// While something was under way.
  double gbps() const;
  /// Every page that moved was compared and none differed.
  bool verified() const { return verify && verified_pages == pages && different_pages == 0; }
};

nlohmann::json to_json(const ReplayReport& report);

}  // namespace penstock::workload
