// Commands on their way to a poller: pushed by any thread, taken in order by one.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "transport/poller/command.hpp"

namespace penstock {

/// Commands are coarse, a few per quantum, so a mutex serves them; the poller's look at an empty
/// queue is one load, and it never waits for a thread that was interrupted while pushing.
class CommandQueue {
 public:
  void push(PollerCommand command) {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
    waiting_.store(true);
  }
  bool waiting() const { return waiting_.load(); }
  /// Swaps what is there into `taken` (which should be empty); false when there is nothing now.
  bool take(std::vector<PollerCommand>& taken) {
    if (!waiting_.load(std::memory_order_relaxed)) return false;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    waiting_.store(false);
    taken.swap(commands_);
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<PollerCommand> commands_;
  std::atomic<bool> waiting_{false};
};

}  // namespace penstock
