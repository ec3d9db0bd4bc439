// How old a message of a peer's may be, though the clocks of two machines have nothing in common.
//
// Every message tells when it was written by its sender's clock, and a time on its receiver's
// clock that had passed by then: the last that was heard from there, and what went by since.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "actors/clock.hpp"

namespace penstock {

class PeerClock {
 public:
  /// For Message::sent_ms; never 0, which is what older versions send.
  static std::uint64_t ms_of(TimePoint time) {
    const auto ms = std::chrono::floor<Milliseconds>(time.time_since_epoch()).count();
    return static_cast<std::uint64_t>(std::max<Milliseconds::rep>(ms, 1));
  }
  /// For Message::sent_after_ms of our messages: this has passed on the peer's clock. 0: it has not
  /// been heard.
  std::uint64_t passed(TimePoint now) const {
    if (heard_ms_ == 0) return 0;
    const auto since = std::chrono::floor<Milliseconds>(now - heard_at_);
    return heard_ms_ + static_cast<std::uint64_t>((since - since / kDrift).count());
  }
  /// A message came that was written when the peer's clock said so. That which was written last
  /// counts; one that is repeated tells when it was written first.
  void heard(std::uint64_t sent_ms, TimePoint now) {
    if (sent_ms <= heard_ms_) return;
    heard_ms_ = sent_ms;
    heard_at_ = now;
  }
  /// When a message that says `sent_after_ms` was written, at the earliest, by our clock. None: it
  /// does not tell.
  static std::optional<TimePoint> written_at(std::uint64_t sent_after_ms, TimePoint now) {
    if (sent_after_ms == 0) return std::nullopt;
    return TimePoint(Milliseconds(std::min(sent_after_ms, ms_of(now))));
  }

 private:
  /// A fifth of the time is not counted on: chrony slews a clock by up to 83,333 ppm (its
  /// maxslewrate), and there are two of them.
  static constexpr int kDrift = 5;

  std::uint64_t heard_ms_ = 0;
  TimePoint heard_at_;
};

}  // namespace penstock
