// What a polling thread does for others between its rounds.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/sim/instant_nic.hpp"
#include "tests/transport/poller/rig.hpp"
#include "transport/poller/poller.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Counts; any thread may ask for more.
class Counting : public SideWork {
 public:
  void begin(std::function<void()> wake) override {
    wake_ = std::move(wake);
    thread = std::this_thread::get_id();
    begun = true;
  }
  bool work(bool is_quiet) override {
    quiet = is_quiet;
    if (std::this_thread::get_id() != thread) ++on_others;
    if (wanted.load() == done.load()) return false;
    ++done;
    return true;
  }
  bool waiting() const override { return wanted.load() != done.load(); }
  void want() {
    ++wanted;
    wake_();
  }
  bool wait_for(int count) const {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (done < count && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(20us);
    return done >= count;
  }
  bool wait_until_quiet_is(bool wished) const {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (quiet != wished && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(20us);
    return quiet == wished;
  }

  std::atomic<bool> begun{false}, quiet{false};
  std::atomic<int> wanted{0}, done{0}, on_others{0};
  std::thread::id thread;

 private:
  std::function<void()> wake_;
};

class SideWorkTest : public testing::Test {
 protected:
  void SetUp() override {
    Poller::Setup setup;
    setup.name = "side-work";
    setup.side_work = counting;
    setup.options.spin = 0us;
    setup.options.idle_tick = 10min;  // only a wake-up can answer in time
    setup.open_cards = []() -> Result<std::vector<std::unique_ptr<Nic>>> {
      std::vector<std::unique_ptr<Nic>> nics;
      nics.push_back(std::make_unique<sim::InstantNic>());
      return nics;
    };
    auto started = Poller::start(std::move(setup));
    ASSERT_TRUE(started) << started.error().message;
    poller = std::move(*started);
  }

  std::shared_ptr<Counting> counting = std::make_shared<Counting>();
  std::unique_ptr<Poller> poller;
};

TEST_F(SideWorkTest, IsDoneOnThePollingThreadThoughThatSleeps) {
  while (!counting->begun) std::this_thread::sleep_for(20us);
  for (int i = 1; i <= 40; ++i) {
    if (i % 10 == 0) std::this_thread::sleep_for(25ms);  // it spins without a wait object
    counting->want();
    ASSERT_TRUE(counting->wait_for(i)) << "lost wake-up in round " << i;
  }
  EXPECT_EQ(counting->on_others, 0);
}

TEST_F(SideWorkTest, HearsWhetherTheThreadHasBulkWork) {
  while (!counting->begun) std::this_thread::sleep_for(20us);
  counting->want();
  ASSERT_TRUE(counting->wait_for(1));
  EXPECT_TRUE(counting->wait_until_quiet_is(true));
  auto region = std::make_shared<RegisteredMemory>();
  region->memory = std::make_shared<test::HeapMemory>(4096);
  region->registrations.push_back(std::make_shared<sim::InstantNic::Registration>());
  StartTransfer start;
  start.transfer = 1;
  start.plan = test::shuffled_plan(4, 1024);
  start.local = region;
  start.paths = {{1, 0, 1, 1}};
  poller->push(OpenLink{1, 0, FabricAddress(1), FabricAddress(1), 1});
  poller->push(std::move(start));
  EXPECT_TRUE(counting->wait_until_quiet_is(false)) << "a transfer is known, though none posted";
  poller->push(Grant{1, 4096});
  poller->push(StopTransfer{1});
  poller->push(EndTransfer{1});
  EXPECT_TRUE(counting->wait_until_quiet_is(true));
}

TEST_F(SideWorkTest, PeersAtWorkAreBulkWork) {
  EXPECT_TRUE(counting->wait_until_quiet_is(true));
  poller->push(PeersAtWork{true});
  EXPECT_TRUE(counting->wait_until_quiet_is(false));
  poller->push(PeersAtWork{false});
  EXPECT_TRUE(counting->wait_until_quiet_is(true));
}

}  // namespace
}  // namespace penstock
