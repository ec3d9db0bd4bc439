#include "actors/worker.hpp"

#include <pthread.h>

#include <utility>

namespace penstock {

Worker::Worker(std::string name) {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

Worker::~Worker() { stop(); }

void Worker::stop() {
  std::deque<std::function<void()>> dropped;  // outside the lock: what a task holds may be an actor
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
  }
  ready_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Worker::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
  }
  ready_.notify_one();
}

void Worker::run() {
  while (true) {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }
}

}  // namespace penstock
