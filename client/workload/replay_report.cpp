#include "client/workload/replay_report.hpp"

#include <algorithm>

namespace penstock::workload {
namespace {

nlohmann::json to_json_ms(const Latency& latency) {
  return {{"count", latency.count},
          {"p50_ms", latency.p50},
          {"p99_ms", latency.p99},
          {"max_ms", latency.max}};
}

}  // namespace

double busy_seconds(std::vector<BusyInterval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::chrono::steady_clock::duration busy{};
  std::chrono::steady_clock::time_point covered_until{};
  for (const auto& interval : intervals) {
    auto begin = std::max(interval.begin, covered_until);
    if (interval.end <= begin) continue;
    busy += interval.end - begin;
    covered_until = interval.end;
  }
  return std::chrono::duration<double>(busy).count();
}

double ReplayReport::gbps() const {
  return busy_s > 0 ? static_cast<double>(bytes) * 8e-9 / busy_s : 0;
}

nlohmann::json to_json(const ReplayReport& report) {
  return {{"requests", report.requests},
          {"requests_without_move", report.requests_without_move},
          {"blocks", report.blocks},
          {"decoder_hits", report.decoder_hits},
          {"prefill_hits", report.prefill_hits},
          {"decoder_evictions", report.decoder_evictions},
          {"pages", report.pages},
          {"page_bytes", report.page_bytes},
          {"bytes", report.bytes},
          {"writes", report.writes},
          {"paths", report.paths},
          {"wall_s", report.wall_s},
          {"busy_s", report.busy_s},
          {"gbps", report.gbps()},
          {"hand_over", to_json_ms(report.hand_over_ms)},
          {"queueing", to_json_ms(report.queueing_ms)},
          {"queueing_s", report.queueing_s},
          {"verified", report.verified()},
          {"verified_pages", report.verified_pages},
          {"different_pages", report.different_pages},
          {"differences", report.differences}};
}

}  // namespace penstock::workload
