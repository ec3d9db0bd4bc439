// When packing pays.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace penstock {

/// kAlways and kNever are the user's word; kAuto asks the costs.
enum class PackingMode : unsigned char { kAuto, kAlways, kNever };

/// What writes to one peer cost when many are under way, in nanoseconds each, by length. Measured
/// at warm-up; the defaults are those of tcp on the machine of docs/performance.md.
struct WriteCosts {
  static constexpr std::array<std::uint64_t, 4> kLengths = {4096, 16384, 65536, 262144};
  std::array<double, kLengths.size()> write_ns = {4700, 8500, 25'000, 80'000};
  /// Copying a byte once more at each end. Both ends do it at the same time.
  double copied_byte_ns = 0.2;

  /// Of a write of any length: a straight line between the measured ones.
  double of(std::uint64_t length) const;
  /// Chunks shorter than this are cheaper packed: their own write costs more than their part of a
  /// long one together with the copies. 0: none are.
  std::uint64_t pack_below() const;
};

}  // namespace penstock
