#include "tests/transport/gpu/bench_report.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "transport/gpu/inventory.hpp"

namespace penstock {

void BenchReport::add(BenchLine line) {
  fmt::print("{:<58} {:>10.3f} {:<6}", line.words, line.value, line.unit);
  if (line.ratio > 0) fmt::print(" {:>6.3f}", line.ratio);
  fmt::print("\n");
  std::fflush(stdout);
  lines_.push_back(std::move(line));
}

double BenchReport::value(const std::string& name) const {
  for (const BenchLine& line : lines_)
    if (line.name == name) return line.value;
  return 0;
}

void BenchReport::write(const std::string& path) const {
  if (path.empty()) return;
  const GpuInventory& inventory = gpu_inventory();
  nlohmann::json all;
  all["gpu"] = inventory.gpus.front().name;
  all["gpus"] = inventory.gpus.size();
  all["driver_cuda"] = inventory.driver_version;
  all["runtime_cuda"] = inventory.runtime_version;
  for (const BenchLine& line : lines_) {
    nlohmann::json one{{"name", line.name}, {"value", line.value}, {"unit", line.unit}};
    if (line.ratio > 0) one["ratio"] = line.ratio;
    all["lines"].push_back(one);
  }
  std::ofstream(path) << all.dump(1) << "\n";
}

}  // namespace penstock
