// One line of the log for each refusal, and not more than the log can bear: a flood of strangers is
// told as a number.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "actors/clock.hpp"

namespace penstock {

/// So many lines a second at most. Pure; time is passed in.
class AuditLimit {
 public:
  explicit AuditLimit(std::uint32_t lines_per_s) : lines_per_s_(lines_per_s) {}

  struct Verdict {
    bool write = true;
    std::uint64_t untold = 0;  // with a line that is written: so many were not before it
  };
  Verdict next(TimePoint now);

 private:
  std::uint32_t lines_per_s_;
  std::uint32_t left_ = 0;
  std::uint64_t untold_ = 0;
  TimePoint until_ = TimePoint::min();
};

/// Any thread.
class Audit {
 public:
  explicit Audit(std::uint32_t lines_per_s = 10) : limit_(lines_per_s) {}

  /// `who`: a client's name, key or address; `what` was asked and why it is not done.
  void refused(std::string_view who, std::string_view what);
  std::uint64_t count() const;

 private:
  mutable std::mutex mutex_;
  AuditLimit limit_;
  std::uint64_t count_ = 0;
};

}  // namespace penstock
