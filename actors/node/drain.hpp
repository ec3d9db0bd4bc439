// When a draining node is done, as pure logic. From its beginning the node refuses new work of its
// own clients. Other nodes' transfers still come in for as long as some do: they were accepted
// before their node knew. Only when none has run for a while the door is shut, and one more look
// makes sure that nothing slipped in.
#pragma once

#include <optional>

#include "actors/clock.hpp"

namespace penstock {

class Drain {
 public:
  enum class Next : unsigned char { kWait, kShut, kDone };

  /// `settle`: how long the others need to learn of it; 0 when there are none.
  explicit Drain(Milliseconds settle) : settle_(settle) {}

  /// A look at what is in flight. kShut (once): refuse what still comes in, then look again.
  Next look(bool busy, TimePoint now) {
    if (busy) {
      quiet_since_.reset();
      return Next::kWait;
    }
    if (shut_) return Next::kDone;
    if (!quiet_since_) quiet_since_ = now;
    if (now - *quiet_since_ < settle_) return Next::kWait;
    shut_ = true;
    return Next::kShut;
  }
  /// The deadline passed: the door is shut whatever is in flight.
  void shut() { shut_ = true; }

 private:
  Milliseconds settle_;
  std::optional<TimePoint> quiet_since_;
  bool shut_ = false;
};

}  // namespace penstock
