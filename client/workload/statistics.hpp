// What a series of measurements says.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock::workload {

/// By nearest rank: the smallest value that at least `percent` % of the values do not exceed.
/// `percent` above 0, at most 100. 0 for no values. Sorts nothing: `sorted` must be ascending.
double percentile(const std::vector<double>& sorted, double percent);

/// Of a series of durations; the unit is the caller's. All 0 for no values.
struct Latency {
  std::size_t count = 0;
  double p50 = 0;
  double p99 = 0;
  double max = 0;
};
Latency latency_of(std::vector<double> values);

/// The middle value (of an even number: the mean of the two) and the extremes. All 0 for no values.
struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};
Spread spread_of(std::vector<double> values);

}  // namespace penstock::workload
