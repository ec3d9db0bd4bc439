#include "actors/security/audit.hpp"

#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

namespace penstock {

AuditLimit::Verdict AuditLimit::next(TimePoint now) {
  if (now >= until_) {
    until_ = now + std::chrono::seconds(1);
    left_ = lines_per_s_;
  }
  if (left_ == 0) {
    ++untold_;
    return {false, 0};
  }
  --left_;
  return {true, std::exchange(untold_, 0)};
}

void Audit::refused(std::string_view who, std::string_view what) {
  const std::lock_guard lock(mutex_);
  ++count_;
  const auto verdict = limit_.next(Clock::now());
  if (!verdict.write) return;
  if (verdict.untold > 0)
    spdlog::warn("audit: {} refusals before this one not told", verdict.untold);
  spdlog::warn("audit: refused {}: {}", who, what);
}

std::uint64_t Audit::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

}  // namespace penstock
