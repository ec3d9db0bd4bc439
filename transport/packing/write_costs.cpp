#include "transport/packing/write_costs.hpp"

#include <algorithm>

namespace penstock {

double WriteCosts::of(std::uint64_t length) const {
  std::size_t right = 1;
  while (right + 1 < kLengths.size() && length > kLengths[right]) ++right;
  const auto x0 = static_cast<double>(kLengths[right - 1]);
  const auto x1 = static_cast<double>(kLengths[right]);
  const double slope = (write_ns[right] - write_ns[right - 1]) / (x1 - x0);
  return std::max(0.0, write_ns[right - 1] + slope * (static_cast<double>(length) - x0));
}

std::uint64_t WriteCosts::pack_below() const {
  // Packing has to be clearly cheaper: costs are measured in a moment, and copies of pages that are
  // in no cache cost more than those that were measured.
  constexpr double kClearly = 1.25;
  const double packed_byte =
      kClearly * (write_ns.back() / static_cast<double>(kLengths.back()) + copied_byte_ns);
  // From long to short in steps that do not matter: a slot must take two at least.
  for (std::uint64_t length = kLengths.back() / 2; length >= 64; length -= length / 8)
    if (of(length) > packed_byte * static_cast<double>(length)) return length;
  return 0;
}

}  // namespace penstock
