// A plain thread for what must block no actor and no poller: registering memory, copying, digests.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace penstock {

class Worker {
 public:
  explicit Worker(std::string name);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Any thread. Tasks run in order; after stop() they are dropped.
  void post(std::function<void()> task);
  /// Finishes the task in hand and drops the rest. Not from a task. Whoever owns the worker stops
  /// it before what its tasks hold goes: the last task may hold the worker's own owner.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace penstock
