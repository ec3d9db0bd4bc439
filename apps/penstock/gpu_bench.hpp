// penstock bench --memory cuda: the ways that pages of a GPU can take, each measured through whole
// services and verified, with host memory over the same provider beside them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::app {

struct GpuBenchOptions {
  std::string provider = "tcp";
  std::vector<std::uint64_t> page_bytes;
  std::uint64_t round_bytes = 0;   // of one request
  std::uint64_t region_bytes = 0;  // of each region
  std::size_t rounds = 5;          // that count; one more warms up
  std::size_t in_flight = 16;      // requests at once, on one node
  std::size_t small_rounds = 500;
  std::string ways;                   // only those whose names contain this
  std::vector<std::string> settings;  // of both services
};

/// Prints a table, or JSON. False: pages were different.
bool bench_gpu(const GpuBenchOptions& options, bool json);

}  // namespace penstock::app
