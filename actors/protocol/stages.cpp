#include "actors/protocol/stages.hpp"

#include <algorithm>

namespace penstock {

std::string_view name_of(Stage stage) {
  switch (stage) {
    case Stage::kAdmission:
      return "admission";
    case Stage::kQueue:
      return "queue";
    case Stage::kMetadata:
      return "metadata";
    case Stage::kPosting:
      return "posting";
    case Stage::kWire:
      return "wire";
    case Stage::kRecovery:
      return "recovery";
    case Stage::kCompletion:
      return "completion";
    case Stage::kCopy:
      return "copy";
    case Stage::kVerification:
      return "verification";
    case Stage::kDelegation:
      return "delegation";
    case Stage::kNotification:
      return "notification";
    case Stage::kOpen:
      return "open";
    case Stage::kClosing:
      return "closing";
  }
  return "unknown";
}

void Stages::enter(Stage stage, TimePoint when) {
  if (!spans_.empty()) {
    if (spans_.back().stage == stage) return;
    when = std::max(when, spans_.back().begin);
  } else {
    spans_.reserve(8);
  }
  // The last place is for the notification, which ends it.
  if (spans_.size() + 1 >= kMostSpans && stage != Stage::kNotification) return;
  spans_.push_back({stage, when});
}

void Stages::split(Stage whole, TimePoint when, Stage rest) {
  for (std::size_t i = spans_.size(); i > 0; --i) {
    if (spans_[i - 1].stage != whole) continue;
    if (when < spans_[i - 1].begin || (i < spans_.size() && when > spans_[i].begin)) return;
    if (spans_.size() + 1 < kMostSpans)
      spans_.insert(spans_.begin() + static_cast<std::ptrdiff_t>(i), {rest, when});
    return;
  }
}

void Stages::finish(TimePoint when) {
  end_ = spans_.empty() ? when : std::max(when, spans_.back().begin);
  finished_ = true;
}

std::chrono::nanoseconds Stages::length(std::size_t i, TimePoint now) const {
  const TimePoint last = finished_ ? end_ : std::max(now, spans_.back().begin);
  return (i + 1 < spans_.size() ? spans_[i + 1].begin : last) - spans_[i].begin;
}

std::array<std::chrono::nanoseconds, kStages> Stages::totals(TimePoint now) const {
  std::array<std::chrono::nanoseconds, kStages> totals{};
  for (std::size_t i = 0; i < spans_.size(); ++i)
    totals[static_cast<std::size_t>(spans_[i].stage)] += length(i, now);
  return totals;
}

}  // namespace penstock
