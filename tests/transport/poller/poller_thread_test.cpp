// The thread around the loop: doorbell, sleep and wake.
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "tests/sim/instant_nic.hpp"
#include "tests/transport/poller/bell.hpp"
#include "transport/poller/poller.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

using sim::InstantNic;
using test::Bell;

Poller::Setup setup_with(Bell& bell) {
  Poller::Setup setup;
  setup.name = "poller-test";
  setup.open_cards = []() -> Result<std::vector<std::unique_ptr<Nic>>> {
    std::vector<std::unique_ptr<Nic>> nics;
    nics.push_back(std::make_unique<InstantNic>());
    return nics;
  };
  setup.doorbell = [&bell] { bell.ring(); };
  return setup;
}

TEST(Poller, RingsOncePerBatchAndAgainAfterItWasDrained) {
  Bell bell;
  auto poller = Poller::start(setup_with(bell));
  ASSERT_TRUE(poller) << poller.error().message;
  // Each of these answers with an event.
  (*poller)->push(ReopenInbound{9, 1});
  ASSERT_TRUE(bell.wait_for(1));
  (*poller)->push(ReopenInbound{9, 1});
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(bell.rings(), 1) << "not drained yet";
  std::size_t events = (*poller)->take_events().size();
  (*poller)->push(ReopenInbound{9, 1});
  ASSERT_TRUE(bell.wait_for(2));
  events += (*poller)->take_events().size();
  EXPECT_EQ(events, 3u);
}

TEST(Poller, ACommandWakesASleepingPollerEveryTime) {
  Bell bell;
  auto setup = setup_with(bell);
  setup.options.idle_tick = 10min;  // only a wake-up can answer in time
  setup.options.spin = 0us;
  auto poller = Poller::start(std::move(setup));
  ASSERT_TRUE(poller);
  for (int round = 1; round <= 2000; ++round) {
    (*poller)->push(ReopenInbound{9, 1});
    ASSERT_TRUE(bell.wait_for(round)) << "lost wake-up in round " << round;
    ASSERT_EQ((*poller)->take_events().size(), 1u);
  }
}

TEST(Poller, ManyThreadsMayPushAndEachOneKeepsItsOrder) {
  Bell bell;
  auto poller = Poller::start(setup_with(bell));
  ASSERT_TRUE(poller);
  constexpr std::uint32_t kEach = 1000;
  std::vector<std::thread> threads;
  for (std::uint16_t thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (std::uint32_t i = 0; i < kEach; ++i)
        (*poller)->push(ReopenInbound{static_cast<std::uint16_t>(100 + thread), i});
    });
  std::map<std::uint16_t, std::uint32_t> next;
  std::size_t received = 0;
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (received < 4 * kEach && std::chrono::steady_clock::now() < deadline) {
    for (const auto& event : (*poller)->take_events()) {
      const auto& answer = std::get<InboundReopened>(event);
      EXPECT_EQ(answer.generation, next[answer.nic]++);
      ++received;
    }
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(received, 4 * kEach);
}

TEST(Poller, AnIdlePollerOnlyTicks) {
  Bell bell;
  auto setup = setup_with(bell);
  setup.options.idle_tick = 20ms;
  auto poller = Poller::start(std::move(setup));
  ASSERT_TRUE(poller);
  auto& nic = static_cast<InstantNic&>((*poller)->nic(0));
  std::this_thread::sleep_for(50ms);
  const auto before = nic.polls.load();
  std::this_thread::sleep_for(200ms);
  EXPECT_LE(nic.polls.load() - before, 30u);
}

TEST(Poller, AFailureToOpenCardsIsTheAnswerOfStart) {
  Bell bell;
  auto setup = setup_with(bell);
  setup.open_cards = []() -> Result<std::vector<std::unique_ptr<Nic>>> {
    return fail(ErrorCode::kProvider, "no such card");
  };
  const auto poller = Poller::start(std::move(setup));
  ASSERT_FALSE(poller);
  EXPECT_EQ(poller.error().message, "no such card");
}

TEST(Poller, PinningToAProcessorThatIsNotThereIsAnError) {
  Bell bell;
  auto setup = setup_with(bell);
  setup.cpus = {100'000};
  const auto poller = Poller::start(std::move(setup));
  ASSERT_FALSE(poller);
  EXPECT_EQ(poller.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock
