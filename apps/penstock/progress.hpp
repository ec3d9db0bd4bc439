// A progress bar on standard error, only when a terminal is there.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace penstock::app {

class Progress {
 public:
  /// `total`: what `done` of show() reaches at the end, in bytes or anything else.
  Progress(std::string label, std::uint64_t total);
  /// Clears the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Redraws at most ten times a second; `note` follows the bar ("3 of 8 transfers").
  void show(std::uint64_t done, const std::string& note = "");
  bool visible() const { return visible_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  std::uint64_t total_;
  bool visible_;
  Clock::time_point next_ = Clock::now();
};

}  // namespace penstock::app
