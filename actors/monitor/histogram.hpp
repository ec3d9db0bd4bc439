// How long something took, counted by length. Pure; one owner.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace penstock {

class Histogram {
 public:
  /// The upper bounds in seconds; one more bucket takes what is longer.
  static constexpr std::array<double, 20> kBounds = {
      10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3,
      25e-3, 50e-3, 0.1,   0.25,   0.5,    1,      2.5,  5,      10,   60};

  void add(std::chrono::nanoseconds time) {
    const double seconds = std::chrono::duration<double>(time).count();
    std::size_t bucket = 0;
    while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
    ++counts_[bucket];
    ++count_;
    sum_s_ += seconds;
  }

  /// In each bucket alone.
  const std::array<std::uint64_t, kBounds.size() + 1>& counts() const { return counts_; }
  std::uint64_t count() const { return count_; }
  double sum_s() const { return sum_s_; }

 private:
  std::array<std::uint64_t, kBounds.size() + 1> counts_{};
  std::uint64_t count_ = 0;
  double sum_s_ = 0;
};

}  // namespace penstock
