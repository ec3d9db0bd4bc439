// Rings an actor from a poller's thread. Pollers start before actors do: rings before aim() are
// kept and delivered then.
#pragma once

#include <mutex>

#include "actors/messages.hpp"

namespace penstock {

class Bell {
 public:
  void ring() {
    std::lock_guard lock(mutex_);
    if (target_)
      tell(target_, PollerRang{});
    else
      pending_ = true;
  }
  void aim(caf::actor target) {
    std::lock_guard lock(mutex_);
    target_ = std::move(target);
    if (target_ && pending_) tell(target_, PollerRang{});
    pending_ = false;
  }

 private:
  std::mutex mutex_;
  caf::actor target_;
  bool pending_ = false;
};

}  // namespace penstock
