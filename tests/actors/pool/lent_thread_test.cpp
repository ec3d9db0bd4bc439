// A polling thread that runs actors: what is sent is handled once, in order, by one thread at a
// time, wherever it is handled.
#include "actors/lent_thread.hpp"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <thread>
#include <vector>

#include "actors/actor_system_config.hpp"
#include "actors/locked_actor.hpp"

namespace penstock {
namespace {

struct Numbered {
  int sender = 0;
  int number = 0;
};
struct Ask {
  std::shared_ptr<std::promise<std::thread::id>> thread;
};

}  // namespace
}  // namespace penstock

PENSTOCK_MESSAGE(penstock::Numbered)
PENSTOCK_MESSAGE(penstock::Ask)

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Stands for a poller: rounds until it is stopped, asleep while there is nothing to do.
class PollingThread {
 public:
  explicit PollingThread(LentThread& lent) : lent_(lent), thread_([this] { run(); }) {}
  ~PollingThread() {
    stopping_ = true;
    wake();
    thread_.join();
  }
  /// Returns when it has seen that.
  void be_quiet(bool quiet) {
    quiet_ = quiet;
    for (const int seen = rounds_; rounds_ < seen + 2; std::this_thread::sleep_for(20us)) wake();
  }
  std::thread::id id() const { return thread_.get_id(); }

 private:
  void run() {
    lent_.begin([this] { wake(); });
    while (!stopping_) {
      const bool worked = lent_.work(quiet_);
      ++rounds_;
      if (worked) continue;
      std::unique_lock lock(mutex_);
      woken_.wait_for(lock, 10s, [this] { return rung_ || lent_.waiting() || stopping_; });
      rung_ = false;
    }
  }
  void wake() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    woken_.notify_one();
  }

  LentThread& lent_;
  std::atomic<bool> quiet_{true};
  std::atomic<int> rounds_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable woken_;
  bool rung_ = false;
  std::thread thread_;
};

class LentThreadTest : public testing::Test {
 protected:
  explicit LentThreadTest(LentThread::Rest rest = LentThread::Rest::kOnWorkers)
      : lent(std::make_shared<LentThread>(rest)) {
    lent->open(system);
  }
  ~LentThreadTest() override {
    lent->close();
    for (const caf::actor& actor : actors) end_actor(actor);
  }
  template <class Function, class... Arguments>
  caf::actor spawn(Function function, Arguments... arguments) {
    // With an argument: without one CAF 0.17 binds a reference to no tuple.
    return actors.emplace_back(system.spawn(
        [=](caf::event_based_actor* self, bool) { return function(self, arguments...); }, true));
  }
  /// Rounds go by, so that the thread knows whether it is quiet.
  void let_rounds_pass() {
    polling.be_quiet(true);
    ASSERT_TRUE(comes_to_run_here(spawn(answering)));
  }
  std::thread::id thread_of(const caf::actor& actor) {
    auto promise = std::make_shared<std::promise<std::thread::id>>();
    auto answer = promise->get_future();
    tell_on(lent, actor, Ask{promise});
    if (answer.wait_for(60s) != std::future_status::ready) ADD_FAILURE() << "left behind";
    return answer.get();
  }
  /// An actor that was started by a worker, or is still at work there, takes the next message
  /// there.
  bool comes_to_run_here(const caf::actor& actor) {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (thread_of(actor) != polling.id()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(100us);
    }
    return true;
  }
  std::thread::id last_of_a_long_queue();
  static caf::behavior answering(caf::event_based_actor*) {
    return {[](const Ask& ask) { ask.thread->set_value(std::this_thread::get_id()); }};
  }

  ActorSystemConfig config{2, 0us};
  caf::actor_system system{config};
  std::vector<caf::actor> actors;
  const std::shared_ptr<LentThread> lent;
  PollingThread polling{*lent};
};

TEST_F(LentThreadTest, WhatIsToldOnItRunsThere) {
  let_rounds_pass();
  EXPECT_TRUE(comes_to_run_here(spawn(answering)));
}

TEST_F(LentThreadTest, WhatARunningActorTellsNextRunsThereToo) {
  let_rounds_pass();
  const auto last = spawn(answering);
  const auto first = spawn([last](caf::event_based_actor*) -> caf::behavior {
    return {[last](const Ask& ask) { tell_next(last, ask); }};
  });
  EXPECT_TRUE(comes_to_run_here(first));
}

TEST_F(LentThreadTest, WhatIsToldOrdinarilyIsAWorkers) {
  let_rounds_pass();
  const auto last = spawn(answering);
  const auto first = spawn([last](caf::event_based_actor*) -> caf::behavior {
    return {[last](const Ask& ask) { tell(last, ask); }};
  });
  EXPECT_NE(thread_of(first), polling.id());
}

TEST_F(LentThreadTest, WhileItIsBusyWorkersRunWhatItIsTold) {
  let_rounds_pass();
  polling.be_quiet(false);
  const auto actor = spawn(answering);
  for (int i = 0; i < 100; ++i) EXPECT_NE(thread_of(actor), polling.id());
}

TEST_F(LentThreadTest, AfterItsCloseNothingRunsThere) {
  let_rounds_pass();
  const auto actor = spawn(answering);
  lent->close();
  for (int i = 0; i < 100; ++i) EXPECT_NE(thread_of(actor), polling.id());
}

TEST_F(LentThreadTest, ACloseWaitsForWhatRunsThere) {
  let_rounds_pass();
  std::promise<void> entered, go_on;
  auto go = go_on.get_future().share();
  std::atomic<bool> left{false};
  const auto actor = spawn([&, go](caf::event_based_actor*) -> caf::behavior {
    return {[&, go](const Numbered&) {
              entered.set_value();
              go.wait();
              left = true;
            },
            [](const Ask& ask) { ask.thread->set_value(std::this_thread::get_id()); }};
  });
  ASSERT_TRUE(comes_to_run_here(actor));
  tell_on(lent, actor, Numbered{});
  entered.get_future().wait();
  std::thread closing([&] {
    lent->close();
    EXPECT_TRUE(left);
  });
  std::this_thread::sleep_for(20ms);
  go_on.set_value();
  closing.join();
}

class KeepingThreadTest : public LentThreadTest {
 protected:
  KeepingThreadTest() : LentThreadTest(LentThread::Rest::kHere) {}
};

/// Which thread takes the last message of a queue that is one longer than an actor takes in a row.
std::thread::id LentThreadTest::last_of_a_long_queue() {
  std::promise<void> entered, go_on;
  auto go = go_on.get_future().share();
  auto last = std::make_shared<std::promise<std::thread::id>>();
  auto ran_on = last->get_future();
  std::thread::id first_on;
  const auto actor = spawn([&, go](caf::event_based_actor*) -> caf::behavior {
    return {[&, go](const Numbered& first) {
              if (first.number != 0) return;
              first_on = std::this_thread::get_id();
              entered.set_value();
              go.wait();
            },
            [](const Ask& ask) { ask.thread->set_value(std::this_thread::get_id()); }};
  });
  EXPECT_TRUE(comes_to_run_here(actor));
  tell_on(lent, actor, Numbered{0, 0});
  entered.get_future().wait();
  for (std::size_t i = 1; i < LentThread::kMessages; ++i) tell(actor, Numbered{0, 1});
  tell(actor, Ask{last});
  go_on.set_value();
  const auto last_on = ran_on.get();
  EXPECT_EQ(first_on, polling.id());
  return last_on;
}

TEST_F(LentThreadTest, ALongQueueIsLeftToWorkersSoThatThePollerGoesOn) {
  let_rounds_pass();
  EXPECT_NE(last_of_a_long_queue(), polling.id());
}

TEST_F(KeepingThreadTest, ALongQueueIsTakenThereToItsEnd) {
  let_rounds_pass();
  EXPECT_EQ(last_of_a_long_queue(), polling.id());
}

TEST_F(KeepingThreadTest, ACloseLeavesTheRestToWorkers) {
  let_rounds_pass();
  std::atomic<int> handled{0};
  const auto actor = spawn([&](caf::event_based_actor*) -> caf::behavior {
    return {[&](const Numbered&) { ++handled; },
            [](const Ask& ask) { ask.thread->set_value(std::this_thread::get_id()); }};
  });
  for (int round = 0; round < 50; ++round) {
    lent->open(system);
    handled = 0;
    for (int i = 0; i < 100; ++i) tell_on(lent, actor, Numbered{0, i});
    lent->close();
    EXPECT_NE(thread_of(actor), polling.id());
    EXPECT_EQ(handled, 100) << round;
  }
}

/// Notes that its messages come from each sender in order, on one thread at a time, and passes
/// every second one on.
struct Checker {
  std::atomic<bool> inside{false};
  std::map<int, int> next;
  std::atomic<int> handled{0};
  std::atomic<int> here{0};  // of them, on the polling thread
  std::atomic<int> wrong{0};
};

caf::behavior checking(caf::event_based_actor*, const std::shared_ptr<Checker>& checker,
                       const caf::actor& onwards) {
  return {[=](const Numbered& message) {
    if (checker->inside.exchange(true)) ++checker->wrong;
    int& next = checker->next[message.sender];
    if (message.number != next++) ++checker->wrong;
    if (onwards) tell_next(onwards, Numbered(message));
    checker->here += LentThread::here() != nullptr;
    checker->inside = false;
    ++checker->handled;
  }};
}

bool wait_until(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + 60s;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

TEST_F(LentThreadTest, ManySendersOfAllKindsAreHandledOnceAndInOrder) {
  constexpr int kSenders = 4, kEach = 3000;
  const auto first = std::make_shared<Checker>(), second = std::make_shared<Checker>();
  const auto b = spawn(checking, second, caf::actor());
  const auto a = spawn(checking, first, b);
  let_rounds_pass();
  std::vector<std::thread> senders;
  for (int s = 0; s < kSenders; ++s)
    senders.emplace_back([&, s] {
      for (int i = 0; i < kEach; ++i) {
        if ((i + s) % 3 == 0)
          tell(a, Numbered{s, i});
        else
          tell_on(lent, a, Numbered{s, i});
        if (i % 64 == 0) std::this_thread::sleep_for(100us);  // all go to sleep now and then
        if (s == 0 && i % 100 == 0) polling.be_quiet(i % 200 == 0);
      }
    });
  for (auto& sender : senders) sender.join();
  polling.be_quiet(true);
  int more = 0;  // at least one of them finds the actor idle
  EXPECT_TRUE(wait_until([&] {
    tell_on(lent, a, Numbered{kSenders, more++});
    return first->here > 0;
  }));
  EXPECT_TRUE(wait_until([&] { return second->handled == kSenders * kEach + more; }))
      << first->handled << " and " << second->handled;
  EXPECT_EQ(first->wrong + second->wrong, 0);
}

TEST_F(LentThreadTest, ACloseInTheMidstLosesNothing) {
  constexpr int kEach = 200;
  for (int round = 0; round < 50; ++round) {
    const auto checker = std::make_shared<Checker>();
    const auto actor = spawn(checking, checker, caf::actor());
    lent->open(system);
    std::thread sender([&] {
      for (int i = 0; i < kEach; ++i) tell_on(lent, actor, Numbered{0, i});
    });
    std::this_thread::sleep_for(std::chrono::microseconds(round * 5));
    lent->close();
    const int here = checker->here;
    sender.join();
    ASSERT_TRUE(wait_until([&] { return checker->handled == kEach; })) << checker->handled;
    EXPECT_EQ(checker->wrong, 0);
    EXPECT_EQ(checker->here, here) << "it ran there after close() had returned";
  }
}

class Desk : public LockedActor {
 public:
  using LockedActor::LockedActor;
  caf::behavior make_behavior() override {
    return {[](const Ask& ask) { ask.thread->set_value(std::this_thread::get_id()); }};
  }
};

TEST_F(LentThreadTest, ThePollerDoesNotWaitForAnActorThatOthersTouch) {
  const auto mutex = std::make_shared<std::mutex>();
  const auto desk = actors.emplace_back(system.spawn<Desk>(mutex));
  thread_of(desk);
  let_rounds_pass();
  auto promise = std::make_shared<std::promise<std::thread::id>>();
  auto ran_on = promise->get_future();
  std::unique_lock touched(*mutex);
  tell_on(lent, desk, Ask{promise});
  thread_of(spawn(answering));
  let_rounds_pass();  // the poller goes on
  EXPECT_EQ(ran_on.wait_for(0s), std::future_status::timeout);
  touched.unlock();
  ASSERT_EQ(ran_on.wait_for(60s), std::future_status::ready);
  EXPECT_NE(ran_on.get(), polling.id());
}

}  // namespace
}  // namespace penstock
