// The third-party transfers that clients of this node wait for (actors/node/shadows.hpp), as the
// devices see them: an executor whose asker has given up its transfer is not let in any more.
#pragma once

#include <mutex>
#include <unordered_set>

#include "actors/protocol/reply.hpp"

namespace penstock {

/// Any thread.
class LiveShadows {
 public:
  void add(TransferId shadow) {
    const std::lock_guard lock(mutex_);
    live_.insert(shadow);
  }
  void remove(TransferId shadow) {
    const std::lock_guard lock(mutex_);
    live_.erase(shadow);
  }
  bool contains(TransferId shadow) const {
    const std::lock_guard lock(mutex_);
    return live_.contains(shadow);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<TransferId> live_;
};

}  // namespace penstock
