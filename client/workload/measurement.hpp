// What one round of a benchmark took, and what a series of them says beside a yardstick. 1 Gbps is
// 10^9 bits per second, 1 GB is 10^9 bytes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/workload/statistics.hpp"

namespace penstock::workload {

struct Measurement {
  std::uint64_t bytes = 0;
  std::uint64_t writes = 0;  // one-sided operations
  double seconds = 0;
  double cpu_seconds = 0;  // of both ends together

  double gbps() const;
  double writes_per_s() const;
  double cpu_s_per_gb() const;
};

/// Two measurements that were taken one after the other, so that the machine was alike for both.
struct MeasuredPair {
  Measurement ours;
  Measurement raw;  // the bare libfabric loop
};

/// The medians of a series of pairs.
struct BenchRow {
  std::uint64_t page_bytes = 0;
  std::string direction;  // "write" or "read"
  std::size_t pairs = 0;
  Spread gbps;
  Spread raw_gbps;
  double writes_per_s = 0;
  double raw_writes_per_s = 0;
  double cpu_s_per_gb = 0;
  double raw_cpu_s_per_gb = 0;
  /// Of ours to raw within each pair.
  Spread ratio;
  bool verified = false;
};
BenchRow bench_row(std::uint64_t page_bytes, std::string direction,
                   const std::vector<MeasuredPair>& pairs, bool verified);

nlohmann::json to_json(const BenchRow& row);
/// {"count", "p50_us", "p99_us", "max_us"}.
nlohmann::json to_json_us(const Latency& latency);

}  // namespace penstock::workload
