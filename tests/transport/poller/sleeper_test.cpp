#include "transport/poller/sleeper.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>

#include "tests/sim/instant_nic.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using Clock = Sleeper::Clock;
using Woken = Sleeper::Woken;

/// Its wait descriptor is readable from ring() to hush().
class Bell final : public sim::InstantNic {
 public:
  Bell() : info_(InstantNic::info()) { info_.wait_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); }
  ~Bell() override { close(info_.wait_fd); }
  const NicInfo& info() const override { return info_; }
  void ring() { ASSERT_EQ(eventfd_write(info_.wait_fd, 1), 0); }
  void hush() {
    eventfd_t count = 0;
    eventfd_read(info_.wait_fd, &count);
  }

 private:
  NicInfo info_;
};

class SleeperTest : public testing::Test {
 protected:
  SleeperTest() { sleeper->watch({&bell}, 5ms); }
  /// Sleeps again and again for `time`; how often the time alone woke it.
  int woken_by_time(Clock::duration time, bool expecting, auto before_each) {
    int count = 0;
    for (const auto end = Clock::now() + time; Clock::now() < end;) {
      before_each();
      const auto woken = sleeper->sleep(Clock::now() + 2s, expecting, [] { return false; });
      count += woken == Woken::kTime;
    }
    return count;
  }

  Bell bell;
  std::unique_ptr<Sleeper> sleeper = Sleeper::make().value();
};

TEST_F(SleeperTest, ADescriptorThatIsStuckWakesForAWhileAndThenTheTickDoes) {
  bell.ring();
  EXPECT_EQ(woken_by_time(500ms, false, [] {}), 0);
  bool by_time = false;
  for (const auto end = Clock::now() + 20s; !by_time && Clock::now() < end;)
    by_time = woken_by_time(50ms, false, [] {}) > 0;
  EXPECT_TRUE(by_time);
}

// A node whose cards are woken by work now and then was once left to its tick for one second in
// eleven.
TEST_F(SleeperTest, OneThatIsWaitedForIsTrusted) {
  std::jthread work([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(10ms);
      bell.ring();
    }
  });
  EXPECT_EQ(woken_by_time(2500ms, false, [this] { bell.hush(); }), 0);
}

TEST_F(SleeperTest, OneThatIsReadableSinceDataStreamsInIsTrusted) {
  bell.ring();
  EXPECT_EQ(woken_by_time(1500ms, true, [] {}), 0);
}

}  // namespace
}  // namespace penstock
