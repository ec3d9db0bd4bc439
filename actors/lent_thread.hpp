// A thread that polls, and runs actors between its rounds. A small transfer is a dozen messages
// between threads, and each wakes another one; with this the actors that a message is for run where
// the message came from, one after the other, and what they send is posted by the same thread.
//
// Nothing else changes: an actor runs on one thread at a time and takes its messages in their
// order. One that is at work already takes the message on its own thread, as ever.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/caf.hpp"
#include "transport/poller/side_work.hpp"

namespace penstock {

class LentThread final : public SideWork {
 public:
  /// Messages that an actor takes in a row.
  static constexpr std::size_t kMessages = 4;
  /// Where it takes what is left: on a worker, or here in a later round, of which each runs one
  /// actor only.
  enum class Rest : std::uint8_t { kOnWorkers, kHere };
  /// Actors that run between two rounds.
  static constexpr std::size_t kRuns = 16;

  explicit LentThread(Rest rest = Rest::kOnWorkers) : rest_(rest) {}

  // -- any thread --------------------------------------------------------------------------------

  /// Actors of this system run here from now on, until close().
  void open(caf::actor_system& system);
  /// Returns when none runs here any more; those that waited for their turn are the workers'.
  void close();
  /// Sends, and has the receiver run here if it does not run anyway.
  template <class Message>
  void tell(const caf::actor& to, Message&& message) {
    if (to)
      caf::actor_cast<caf::abstract_actor*>(to)->enqueue(
          caf::make_mailbox_element(nullptr, caf::make_message_id(), {},
                                    std::forward<Message>(message)),
          &jobs_);
  }
  /// Whether it would run an actor now.
  bool willing() const { return willing_.load(std::memory_order_relaxed); }
  /// The one that runs actors on this thread; null on all other threads.
  static LentThread* here();

  // -- the thread itself -------------------------------------------------------------------------

  void begin(std::function<void()> wake) override;
  bool work(bool quiet) override;
  bool waiting() const override { return waiting_.load(); }

 private:
  /// Where messages leave their receivers that have to run.
  class Jobs final : public caf::execution_unit {
   public:
    explicit Jobs(LentThread& thread) : thread_(thread) {}
    void exec_later(caf::resumable* job) override { thread_.take(job); }

   private:
    LentThread& thread_;
  };
  /// What an actor that runs here knows as its thread: it sends as it would elsewhere, by workers.
  class Worker final : public caf::execution_unit {
   public:
    void open(caf::actor_system& system) { system_ = &system; }
    void exec_later(caf::resumable* job) override;
  };

  void take(caf::resumable* job);
  bool next(std::vector<caf::resumable*>& jobs, std::size_t most);
  void run(caf::resumable* job);

  const Rest rest_;
  Jobs jobs_{*this};
  Worker worker_;
  std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<caf::resumable*> waits_;  // each with a reference
  bool open_ = false;
  std::atomic<bool> willing_{false};  // written by the thread alone, under the lock
  bool running_ = false;
  std::atomic<bool> waiting_{false};
  std::vector<caf::resumable*> taken_;  // the thread's own
};

/// As tell(), and as soon as that can be: where a lent thread runs the sender, it runs the receiver
/// next.
template <class Message>
void tell_next(const caf::actor& to, Message&& message) {
  if (LentThread* thread = LentThread::here())
    thread->tell(to, std::forward<Message>(message));
  else
    tell(to, std::forward<Message>(message));
}

/// As tell(), and the receiver runs on `thread` if it can; null: wherever.
template <class Message>
void tell_on(const std::shared_ptr<LentThread>& thread, const caf::actor& to, Message&& message) {
  if (thread)
    thread->tell(to, std::forward<Message>(message));
  else
    tell(to, std::forward<Message>(message));
}

}  // namespace penstock
