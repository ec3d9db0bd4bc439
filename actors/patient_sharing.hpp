// CAF's work sharing (one queue for all workers), but a worker that runs out of work looks for more
// for a while before it sleeps: waking a thread costs 5 to 50 us, and a small transfer is handed
// from actor to actor a dozen times. While one worker looks, no other that sleeps is woken.
#pragma once

#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/policy/unprofiled.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduler/coordinator.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

namespace penstock {

/// How long workers look for work; the configuration of a system with PatientSharing is one, too.
struct Patience {
  std::chrono::microseconds spin{0};
};

class PatientSharing : public caf::policy::unprofiled {
 public:
  // CAF looks for these two names.
  struct coordinator_data {  // NOLINT(readability-identifier-naming)
    explicit coordinator_data(caf::scheduler::abstract_coordinator* coordinator)
        : spin(dynamic_cast<const Patience&>(coordinator->system().config()).spin) {}

    const std::chrono::microseconds spin;
    std::mutex lock;
    std::condition_variable wake;
    std::deque<caf::resumable*> jobs;
    std::atomic<std::size_t> waiting{0};  // jobs; changed under the lock, read without
    int looking = 0, asleep = 0;          // workers, under the lock
  };
  struct worker_data {  // NOLINT(readability-identifier-naming)
    explicit worker_data(caf::scheduler::abstract_coordinator*) {}
  };

  template <class Coordinator>
  void central_enqueue(Coordinator* coordinator, caf::resumable* job) {
    auto& shared = d(coordinator);
    bool wake = false;
    {
      const std::lock_guard guard(shared.lock);
      shared.jobs.push_back(job);
      shared.waiting.store(shared.jobs.size(), std::memory_order_relaxed);
      wake = shared.asleep > 0 && shared.jobs.size() > static_cast<std::size_t>(shared.looking);
    }
    if (wake) shared.wake.notify_one();
  }
  template <class Worker>
  void external_enqueue(Worker* worker, caf::resumable* job) {
    central_enqueue(worker->parent(), job);
  }
  template <class Worker>
  void internal_enqueue(Worker* worker, caf::resumable* job) {
    central_enqueue(worker->parent(), job);
  }
  template <class Worker>
  void resume_job_later(Worker* worker, caf::resumable* job) {
    central_enqueue(worker->parent(), job);
  }

  template <class Worker>
  caf::resumable* dequeue(Worker* worker) {
    auto& shared = d(worker->parent());
    std::unique_lock guard(shared.lock);
    if (shared.jobs.empty() && shared.spin.count() > 0) look(shared, guard);
    ++shared.asleep;
    shared.wake.wait(guard, [&] { return !shared.jobs.empty(); });
    --shared.asleep;
    caf::resumable* job = shared.jobs.front();
    shared.jobs.pop_front();
    shared.waiting.store(shared.jobs.size(), std::memory_order_relaxed);
    return job;
  }

  template <class Worker, class Function>
  void foreach_resumable(Worker*, Function) {}
  template <class Coordinator, class Function>
  void foreach_central_resumable(Coordinator* coordinator, Function function) {
    std::deque<caf::resumable*> left;
    {
      const std::lock_guard guard(d(coordinator).lock);
      left.swap(d(coordinator).jobs);
    }
    for (caf::resumable* job : left) function(job);
  }

 private:
  /// Until there is work or the worker's patience ends; without the lock.
  static void look(coordinator_data& shared, std::unique_lock<std::mutex>& guard) {
    ++shared.looking;
    guard.unlock();
    const auto until = std::chrono::steady_clock::now() + shared.spin;
    while (shared.waiting.load(std::memory_order_relaxed) == 0 &&
           std::chrono::steady_clock::now() < until) {
    }
    guard.lock();
    --shared.looking;
  }
};

}  // namespace penstock
