// Events on their way from a poller to its one consumer, with a doorbell that rings once per batch.
#pragma once

#include <atomic>
#include <functional>
#include <iterator>
#include <mutex>
#include <vector>

#include "transport/poller/event.hpp"

namespace penstock {

/// As with commands, a mutex that the poller never waits for serves coarse events.
class EventQueue {
 public:
  explicit EventQueue(std::function<void()> doorbell) : doorbell_(std::move(doorbell)) {}

  /// The poller's side: moves `events` over and rings, unless the bell was rung and nobody came
  /// yet. Push first, then ring: whoever clears the bell sees the events. False: the consumer is
  /// just draining; nothing was moved, try again.
  bool push(std::vector<PollerEvent>& events) {
    {
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock) return false;
      events_.insert(events_.end(), std::make_move_iterator(events.begin()),
                     std::make_move_iterator(events.end()));
    }
    events.clear();
    if (!rung_.exchange(true) && doorbell_) doorbell_();
    return true;
  }

  /// The consumer's side. Clear first, then drain: an event pushed meanwhile rings again.
  std::vector<PollerEvent> take() {
    rung_.exchange(false);
    std::vector<PollerEvent> taken;
    const std::lock_guard lock(mutex_);
    taken.swap(events_);
    return taken;
  }

 private:
  std::mutex mutex_;
  std::vector<PollerEvent> events_;
  std::atomic<bool> rung_{false};
  std::function<void()> doorbell_;
};

}  // namespace penstock
