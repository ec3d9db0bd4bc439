// An actor whose state others may touch while it does not run.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "actors/lent_thread.hpp"

namespace penstock {

/// Others hold `mutex` while they touch it, as it does while it handles messages.
class LockedActor : public caf::event_based_actor {
 public:
  LockedActor(caf::actor_config& config, std::shared_ptr<std::mutex> mutex)
      : caf::event_based_actor(config), mutex_(std::move(mutex)) {}
  resume_result resume(caf::execution_unit* worker, std::size_t most) override {
    const auto mutex = mutex_;  // ours may be gone before we unlock it
    if (LentThread::here() == nullptr) {
      const std::lock_guard lock(*mutex);
      return caf::event_based_actor::resume(worker, most);
    }
    // A polling thread waits for nobody: a worker may. And it takes the one message that it was
    // told, none that came behind it: what clients ask of a node may take its time.
    const std::unique_lock lock(*mutex, std::try_to_lock);
    return lock ? caf::event_based_actor::resume(worker, 1) : resume_later;
  }

 private:
  std::shared_ptr<std::mutex> mutex_;
};

}  // namespace penstock
