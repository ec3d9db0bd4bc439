#include "actors/lent_thread.hpp"

#include <algorithm>
#include <caf/scheduler/abstract_coordinator.hpp>
#include <limits>

namespace penstock {
namespace {

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
thread_local LentThread* lent_here = nullptr;

}  // namespace

LentThread* LentThread::here() { return lent_here; }

void LentThread::open(caf::actor_system& system) {
  const std::lock_guard lock(mutex_);
  worker_.open(system);
  open_ = true;
}

void LentThread::close() {
  std::vector<caf::resumable*> left;
  {
    std::unique_lock lock(mutex_);
    open_ = false;
    idle_.wait(lock, [this] { return !running_; });
    left.swap(waits_);
    waiting_.store(false);
  }
  for (caf::resumable* job : left) worker_.exec_later(job);
}

void LentThread::Worker::exec_later(caf::resumable* job) { system().scheduler().enqueue(job); }

/// From any thread, with a reference to the job: it is taken here or by the workers.
void LentThread::take(caf::resumable* job) {
  {
    const std::lock_guard lock(mutex_);
    if (open_ && willing_) {
      waits_.push_back(job);
      waiting_.store(true);  // before the look whether the thread sleeps
      job = nullptr;
    }
  }
  if (job != nullptr) return worker_.exec_later(job);
  if (lent_here != this) wake_();
}

void LentThread::begin(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
  lent_here = this;
}

bool LentThread::work(bool quiet) {
  if (willing_ != quiet) {
    const std::lock_guard lock(mutex_);
    willing_ = quiet;
  }
  bool worked = false;
  // To be handed on takes no time: all of them at once.
  const std::size_t most = rest_ == Rest::kOnWorkers ? kRuns : 1;
  for (std::size_t left = quiet ? most : kAll; left > 0 && next(taken_, left); worked = true) {
    if (quiet) left -= taken_.size();
    for (caf::resumable* job : taken_) quiet ? run(job) : worker_.exec_later(job);
    taken_.clear();
    const std::lock_guard lock(mutex_);
    running_ = false;
    if (!open_) idle_.notify_all();
  }
  return worked;
}

/// Takes so many of those that wait at most; from then on close() waits, too.
bool LentThread::next(std::vector<caf::resumable*>& jobs, std::size_t most) {
  if (!waiting_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  if (waits_.empty() || !open_) return false;  // closed: close() takes them
  const auto end = waits_.begin() + static_cast<std::ptrdiff_t>(std::min(most, waits_.size()));
  jobs.assign(waits_.begin(), end);
  waits_.erase(waits_.begin(), end);
  waiting_.store(!waits_.empty());
  running_ = true;
  return true;
}

void LentThread::run(caf::resumable* job) {
  switch (job->resume(&worker_, kMessages)) {
    case caf::resumable::resume_later:  // with its reference
      if (rest_ == Rest::kOnWorkers) return worker_.exec_later(job);
      {
        const std::lock_guard lock(mutex_);
        waits_.push_back(job);
        waiting_.store(true);
      }
      return;
    case caf::resumable::awaiting_message:
    case caf::resumable::done:
    case caf::resumable::shutdown_execution_unit:
      return caf::intrusive_ptr_release(job);
  }
}

}  // namespace penstock
