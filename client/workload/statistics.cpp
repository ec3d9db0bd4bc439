#include "client/workload/statistics.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::workload {

double percentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

Latency latency_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.size(), percentile(values, 50), percentile(values, 99), values.back()};
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  auto middle = values.size() / 2;
  double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

}  // namespace penstock::workload
