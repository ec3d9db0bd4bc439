// How long to leave a link alone that takes nothing although nothing of ours is out on it: its peer
// is not connected yet, or gone. Trying costs a connection attempt, so the pauses grow.
#pragma once

#include <algorithm>
#include <chrono>

namespace penstock {

class Backoff {
 public:
  using Time = std::chrono::steady_clock::time_point;

  bool waiting() const { return delay_.count() > 0; }
  Time until() const { return until_; }
  bool blocks(Time now) const { return waiting() && now < until_; }

  /// A connection is made in a few hundred microseconds where the peer is there: the first pauses
  /// are short against that. A peer that comes back is found within the longest.
  void refused(Time now) {
    delay_ = waiting() ? std::min(delay_ * 2, kLongest) : kShortest;
    until_ = now + delay_;
  }
  void accepted() { delay_ = {}; }

 private:
  static constexpr std::chrono::nanoseconds kShortest = std::chrono::microseconds(10);
  static constexpr std::chrono::nanoseconds kLongest = std::chrono::milliseconds(50);

  std::chrono::nanoseconds delay_{0};
  Time until_{};
};

}  // namespace penstock
