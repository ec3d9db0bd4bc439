// A doorbell that a test can wait for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace penstock::test {

class Bell {
 public:
  void ring() {
    const std::lock_guard lock(mutex_);
    ++rings_;
    condition_.notify_all();
  }
  /// False: it has not rung so often within 10 s.
  bool wait_for(int rings) {
    std::unique_lock lock(mutex_);
    return condition_.wait_for(lock, std::chrono::seconds(10), [&] { return rings_ >= rings; });
  }
  int rings() {
    const std::lock_guard lock(mutex_);
    return rings_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  int rings_ = 0;
};

}  // namespace penstock::test
