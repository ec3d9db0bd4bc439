#include "actors/device/warm_up.hpp"

#include <algorithm>
#include <vector>

namespace penstock {
namespace {

/// Of each length: enough to fill the pipe, little enough for a slow link.
constexpr std::array<std::uint64_t, WriteCosts::kLengths.size()> kWrites = {64, 16, 8, 4};

/// `writes` of `bytes` each; where they do not all fit into the scratch region they cover one
/// another, which does no harm there.
std::shared_ptr<const Plan> plan_of(std::uint64_t writes, std::uint64_t bytes) {
  std::vector<Range> ranges;
  for (std::uint64_t i = 0; i < writes; ++i) {
    const std::uint64_t at = i * bytes % kScratchBytes;
    ranges.push_back({at, at, bytes});
  }
  return Plan::make(Ranges{BlobList<Range>::of(ranges)}, {kScratchBytes, false}).value();
}

}  // namespace

std::optional<WarmUp::Step> WarmUp::next() const {
  static const auto touch = plan_of(1, 64);
  static const auto plans = [] {
    std::array<std::shared_ptr<const Plan>, kLengths> made;
    for (std::size_t i = 0; i < kLengths; ++i)
      made[i] = plan_of(kWrites[i], WriteCosts::kLengths[i]);
    return made;
  }();
  if (touched_ < links_) return Step{touch, touched_};
  if (round_ < kRounds) return Step{plans[length_], 0};
  return std::nullopt;
}

void WarmUp::done(std::size_t links, Nanoseconds elapsed) {
  if (touched_ < links_) {
    links_ = std::max<std::size_t>(links, 1);
    ++touched_;
    return;
  }
  shortest_[length_] = std::min(shortest_[length_], elapsed);
  if (++length_ < kLengths) return;
  length_ = 0;
  ++round_;
}

WriteCosts WarmUp::costs() const {
  WriteCosts costs = costs_;
  for (std::size_t i = 0; i < kLengths; ++i)
    costs.write_ns[i] = static_cast<double>(shortest_[i].count()) / static_cast<double>(kWrites[i]);
  return costs;
}

}  // namespace penstock
