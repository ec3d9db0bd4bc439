// Several devices on one polling thread.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "tests/sim/instant_nic.hpp"
#include "tests/transport/poller/bell.hpp"
#include "transport/poller/poller.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using test::Bell;

/// What a test knows of a card and asks of it.
struct Watched {
  std::mutex mutex;
  std::set<std::thread::id> threads;  // that opened, polled or closed it
  std::atomic<int> open{0};
  std::atomic<std::uint64_t> polls{0};
  std::atomic<bool> busy{false};     // has something at every poll
  std::atomic<bool> stalled{false};  // completes nothing
};

class WatchedNic final : public sim::InstantNic {
 public:
  explicit WatchedNic(Watched& watched) : watched_(watched) {
    note_thread();
    ++watched_.open;
  }
  ~WatchedNic() override {
    note_thread();
    --watched_.open;
  }
  std::size_t poll(std::span<Completion> completions) override {
    note_thread();
    ++watched_.polls;
    if (watched_.stalled) return 0;
    if (!watched_.busy) return InstantNic::poll(completions);
    completions[0] = {};
    completions[0].kind = Completion::Kind::kImmediate;  // for nobody: it is only counted
    return 1;
  }

 private:
  void note_thread() {
    const std::lock_guard lock(watched_.mutex);
    watched_.threads.insert(std::this_thread::get_id());
  }
  Watched& watched_;
};

struct TestedDevice {
  Watched card;
  Bell bell;
  Poller::Device device() {
    Poller::Device device;
    device.open_cards = [this]() -> Result<std::vector<std::unique_ptr<Nic>>> {
      std::vector<std::unique_ptr<Nic>> nics;
      nics.push_back(std::make_unique<WatchedNic>(card));
      return nics;
    };
    device.doorbell = [this] { bell.ring(); };
    return device;
  }
};

/// Answered by an event of its own device, carried out by the poller's thread.
const ReopenInbound kQuestion{9, 1};

template <class Condition>
bool soon(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (!condition())
    if (std::chrono::steady_clock::now() > deadline) return false;
  return true;
}

class SharedThread : public ::testing::Test {
 protected:
  void start(PollerOptions options = {}) {
    std::vector<Poller::Device> devices{a.device(), b.device()};
    for (auto& device : devices) device.options = options;
    auto started = Poller::start_together({"shared", {}}, std::move(devices));
    ASSERT_TRUE(started) << started.error().message;
    ASSERT_EQ(started->size(), 2u);
    poller_a = std::move((*started)[0]);
    poller_b = std::move((*started)[1]);
  }

  TestedDevice a, b;  // outlive their pollers
  std::unique_ptr<Poller> poller_a, poller_b;
};

TEST_F(SharedThread, EachDeviceAnswersItsOwnCommandsAndRingsItsOwnBell) {
  start();
  poller_a->push(kQuestion);
  ASSERT_TRUE(a.bell.wait_for(1));
  EXPECT_EQ(poller_a->take_events().size(), 1u);
  EXPECT_EQ(poller_b->take_events().size(), 0u);
  EXPECT_EQ(b.bell.rings(), 0);
  poller_b->push(kQuestion);
  ASSERT_TRUE(b.bell.wait_for(1));
  EXPECT_EQ(poller_b->take_events().size(), 1u);
}

TEST_F(SharedThread, CommandsToEitherDeviceWakeTheThreadEveryTime) {
  PollerOptions options;
  options.idle_tick = 10min;  // only a wake-up can answer in time
  options.spin = 0us;
  start(options);
  for (int round = 1; round <= 1000; ++round) {
    poller_a->push(kQuestion);
    ASSERT_TRUE(a.bell.wait_for(round)) << "lost wake-up in round " << round;
    poller_a->take_events();
    poller_b->push(kQuestion);
    ASSERT_TRUE(b.bell.wait_for(round)) << "lost wake-up in round " << round;
    poller_b->take_events();
  }
}

TEST_F(SharedThread, ABusyDeviceAndAnIdleOneAreSteppedEquallyOften) {
  a.card.busy = true;
  start();
  const auto polls_a = a.card.polls.load();
  const auto polls_b = b.card.polls.load();
  ASSERT_TRUE(soon([&] { return a.card.polls.load() > polls_a + 10'000; }));
  const auto more_a = a.card.polls.load() - polls_a;
  EXPECT_GE(b.card.polls.load() - polls_b + 2, more_a - more_a / 10);
  poller_b->push(kQuestion);
  EXPECT_TRUE(b.bell.wait_for(1));
}

TEST_F(SharedThread, ADeviceThatMakesNoProgressHoldsUpNobody) {
  a.card.stalled = true;
  start();
  poller_a->push(OpenLink{1, 0, FabricAddress(1), {}});
  poller_a->push(SendMessage{1, std::vector<std::byte>(8)});  // never completes
  std::this_thread::sleep_for(20ms);
  poller_b->push(OpenLink{1, 0, FabricAddress(1), {}});
  for (int round = 1; round <= 100; ++round)
    poller_b->push(SendMessage{1, std::vector<std::byte>(8)});
  EXPECT_TRUE(soon([&] { return poller_b->counters(0).messages_sent.load() == 100; }));
  EXPECT_EQ(poller_a->counters(0).messages_sent.load(), 0u);
}

TEST_F(SharedThread, SleepsWhenAllDevicesAreIdle) {
  PollerOptions options;
  options.idle_tick = 20ms;
  start(options);
  std::this_thread::sleep_for(50ms);
  const auto before = b.card.polls.load();
  std::this_thread::sleep_for(200ms);
  EXPECT_LE(b.card.polls.load() - before, 30u);
}

TEST_F(SharedThread, OneThreadOpensPollsAndClosesTheCardsOfAll) {
  start();
  poller_a.reset();
  EXPECT_EQ(a.card.open, 0) << "closed when its poller is gone";
  EXPECT_EQ(b.card.open, 1);
  poller_b->push(kQuestion);
  EXPECT_TRUE(b.bell.wait_for(1)) << "the other goes on";
  poller_b.reset();
  EXPECT_EQ(b.card.open, 0);
  EXPECT_EQ(a.card.threads, b.card.threads);
  EXPECT_EQ(a.card.threads.size(), 1u);
  EXPECT_FALSE(a.card.threads.contains(std::this_thread::get_id()));
}

TEST_F(SharedThread, AnErrorOfTheSecondDeviceClosesTheFirst) {
  std::vector<Poller::Device> devices{a.device(), b.device()};
  devices[1].open_cards = []() -> Result<std::vector<std::unique_ptr<Nic>>> {
    return fail(ErrorCode::kProvider, "no such card");
  };
  const auto started = Poller::start_together({"shared", {}}, std::move(devices));
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().message, "no such card");
  EXPECT_EQ(a.card.open, 0);
  EXPECT_EQ(a.card.threads.size(), 1u) << "closed on the thread that opened it";
}

TEST_F(SharedThread, EachDeviceIsToldItsPartOfTheCpuTime) {
  start();
  const auto timed = poller_a->cpu_time();
  EXPECT_EQ(timed > 0ns, true);
  EXPECT_EQ(Poller::start_together({"none", {}}, {}).has_value(), false);
}

}  // namespace
}  // namespace penstock
