#include "client/workload/measurement.hpp"

namespace penstock::workload {
namespace {

double ratio_of(double a, double b) { return b > 0 ? a / b : 0; }

template <class Value>
Spread spread_over(const std::vector<MeasuredPair>& pairs, Value value) {
  std::vector<double> values;
  values.reserve(pairs.size());
  for (const auto& pair : pairs) values.push_back(value(pair));
  return spread_of(std::move(values));
}

}  // namespace

double Measurement::gbps() const { return ratio_of(static_cast<double>(bytes) * 8e-9, seconds); }

double Measurement::writes_per_s() const { return ratio_of(static_cast<double>(writes), seconds); }

double Measurement::cpu_s_per_gb() const {
  return ratio_of(cpu_seconds, static_cast<double>(bytes) * 1e-9);
}

BenchRow bench_row(std::uint64_t page_bytes, std::string direction,
                   const std::vector<MeasuredPair>& pairs, bool verified) {
  auto median = [&pairs](auto value) { return spread_over(pairs, value).median; };
  BenchRow row;
  row.page_bytes = page_bytes;
  row.direction = std::move(direction);
  row.pairs = pairs.size();
  row.gbps = spread_over(pairs, [](const MeasuredPair& pair) { return pair.ours.gbps(); });
  row.raw_gbps = spread_over(pairs, [](const MeasuredPair& pair) { return pair.raw.gbps(); });
  row.writes_per_s = median([](const MeasuredPair& pair) { return pair.ours.writes_per_s(); });
  row.raw_writes_per_s = median([](const MeasuredPair& pair) { return pair.raw.writes_per_s(); });
  row.cpu_s_per_gb = median([](const MeasuredPair& pair) { return pair.ours.cpu_s_per_gb(); });
  row.raw_cpu_s_per_gb = median([](const MeasuredPair& pair) { return pair.raw.cpu_s_per_gb(); });
  row.ratio = spread_over(
      pairs, [](const MeasuredPair& pair) { return ratio_of(pair.ours.gbps(), pair.raw.gbps()); });
  row.verified = verified;
  return row;
}

nlohmann::json to_json(const BenchRow& row) {
  return {{"page_bytes", row.page_bytes},
          {"direction", row.direction},
          {"pairs", row.pairs},
          {"gbps", row.gbps.median},
          {"gbps_min", row.gbps.min},
          {"gbps_max", row.gbps.max},
          {"writes_per_s", row.writes_per_s},
          {"cpu_s_per_gb", row.cpu_s_per_gb},
          {"raw_gbps", row.raw_gbps.median},
          {"raw_gbps_min", row.raw_gbps.min},
          {"raw_gbps_max", row.raw_gbps.max},
          {"raw_writes_per_s", row.raw_writes_per_s},
          {"raw_cpu_s_per_gb", row.raw_cpu_s_per_gb},
          {"ratio", row.ratio.median},
          {"ratio_min", row.ratio.min},
          {"ratio_max", row.ratio.max},
          {"verified", row.verified}};
}

nlohmann::json to_json_us(const Latency& latency) {
  return {{"count", latency.count},
          {"p50_us", latency.p50},
          {"p99_us", latency.p99},
          {"max_us", latency.max}};
}

}  // namespace penstock::workload
