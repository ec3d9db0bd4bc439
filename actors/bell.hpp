// Rings an actor from a poller's thread. Pollers start before actors do: rings before aim() are
// kept and delivered then.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "actors/lent_thread.hpp"
#include "actors/messages.hpp"

namespace penstock {

class Bell {
 public:
  /// `thread`: where the actor is to run; null: wherever.
  explicit Bell(std::shared_ptr<LentThread> thread = nullptr) : thread_(std::move(thread)) {}
  void ring() {
    std::lock_guard lock(mutex_);
    if (target_)
      tell_on(thread_, target_, PollerRang{});
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
  const std::shared_ptr<LentThread> thread_;
  std::mutex mutex_;
  caf::actor target_;
  bool pending_ = false;
};

}  // namespace penstock
