// What a page costs in the plan: scanning a layout once, then drawing its chunks.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <vector>

#include "transport/plan/plan.hpp"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPageBytes = 64 << 10;

struct Case {
  std::uint32_t pages;
  std::uint32_t layers;
  bool shuffled;
  bool merge;
};

Pages layout_of(const Case& c) {
  std::vector<std::uint32_t> source(c.pages);
  std::iota(source.begin(), source.end(), 0u);
  std::vector<std::uint32_t> destination = source;
  if (c.shuffled) {
    std::shuffle(source.begin(), source.end(), std::mt19937(1));
    std::shuffle(destination.begin(), destination.end(), std::mt19937(2));
  }
  Pages layout;
  layout.row_bytes = layout.source_stride = layout.destination_stride = kPageBytes;
  layout.source_pages = BlobList<std::uint32_t>::of(source);
  layout.destination_pages = BlobList<std::uint32_t>::of(destination);
  layout.bases.clear();
  for (std::uint64_t layer = 0; layer < c.layers; ++layer)
    layout.bases.push_back({layer * (c.pages + 1) * kPageBytes, layer * c.pages * kPageBytes});
  return layout;
}

/// The best of a few rounds, in nanoseconds: the least disturbed.
template <class Work>
double best_ns(Work work) {
  constexpr int kRounds = 7;
  auto best = Clock::duration::max();
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    work();
    best = std::min(best, Clock::now() - start);
  }
  return std::chrono::duration<double, std::nano>(best).count();
}

void measure(const Case& c) {
  const Pages layout = layout_of(c);
  std::shared_ptr<const Plan> plan;
  const double scan = best_ns([&] { plan = *Plan::make(layout, {.merge = c.merge}); });
  std::uint64_t sum = 0;
  const double draw = best_ns([&] {
    Cursor cursor(*plan);
    for (Chunk chunk; cursor.next(chunk);) sum += chunk.source_offset ^ chunk.destination_offset;
  });
  const double pages = double(c.pages) * c.layers;
  fmt::print("{:>7} x {:<3} {:<11} {:<4} {:>9} {:>12.3f} {:>14.2f} {:>15.2f}  {:04x}\n", c.pages,
             c.layers, c.shuffled ? "shuffled" : "neighbours", c.merge ? "on" : "off",
             plan->chunks(), scan / pages, draw / pages, draw / double(plan->chunks()),
             sum & 0xffff);
}

}  // namespace
}  // namespace penstock

int main() {
  fmt::print("{:>7} x {:<3} {:<11} {:<4} {:>9} {:>12} {:>14} {:>15}\n", "pages", "layers", "order",
             "merge", "chunks", "scan ns/page", "cursor ns/page", "cursor ns/chunk");
  for (const auto& [pages, layers] : {std::pair{10'000u, 1u}, std::pair{112'000u, 60u}})
    for (const bool shuffled : {true, false})
      for (const bool merge : {true, false}) penstock::measure({pages, layers, shuffled, merge});
}
