// The actors' pool of threads: work is done by whoever looks or is woken, and never left behind.
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "actors/actor_system_config.hpp"

struct Pass {
  int left = 0;
  caf::actor to;
};
struct Add {
  int number = 0;
};
PENSTOCK_MESSAGE(Pass)
PENSTOCK_MESSAGE(Add)

namespace penstock {
namespace {

using namespace std::chrono_literals;

struct Pool {
  std::size_t threads;
  std::chrono::microseconds spin;
};

class PatientSharingTest : public testing::TestWithParam<Pool> {
 protected:
  ActorSystemConfig config{GetParam().threads, GetParam().spin};
};

// Adds up what it is sent and fulfils the promise with the sum of the last.
caf::behavior adder(caf::event_based_actor* self, int wanted,
                    const std::shared_ptr<std::promise<int>>& done) {
  auto sum = std::make_shared<int>(0);
  auto seen = std::make_shared<int>(0);
  return {[=](const Add& add) {
    *sum += add.number;
    if (++*seen < wanted) return;
    done->set_value(*sum);
    self->quit();
  }};
}

caf::behavior passer(caf::event_based_actor* self, const std::shared_ptr<std::promise<int>>& done) {
  return {[=](const Pass& pass) {
    if (pass.left == 0)
      done->set_value(0);
    else
      self->send(pass.to, Pass{pass.left - 1, caf::actor_cast<caf::actor>(self)});
  }};
}

TEST_P(PatientSharingTest, WhatManyThreadsSendIsAllHandled) {
  constexpr int kSenders = 4, kEach = 500, kActors = 5;
  caf::actor_system system(config);
  std::vector<caf::actor> actors;
  std::vector<std::future<int>> sums;
  for (int i = 0; i < kActors; ++i) {
    auto done = std::make_shared<std::promise<int>>();
    sums.push_back(done->get_future());
    actors.push_back(system.spawn(adder, kSenders * kEach, done));
  }
  std::vector<std::thread> senders;
  for (int s = 0; s < kSenders; ++s)
    senders.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        for (const auto& actor : actors) tell(actor, Add{1});
        if (i % 100 == 0) std::this_thread::sleep_for(1ms);  // all go to sleep now and then
      }
    });
  for (auto& sender : senders) sender.join();
  for (auto& sum : sums) {
    ASSERT_EQ(sum.wait_for(60s), std::future_status::ready) << "a job was left behind";
    EXPECT_EQ(sum.get(), kSenders * kEach);
  }
}

TEST_P(PatientSharingTest, AChainOfHandOversComesToItsEnd) {
  caf::actor_system system(config);
  auto done = std::make_shared<std::promise<int>>();
  auto end = done->get_future();
  const caf::actor a = system.spawn(passer, done), b = system.spawn(passer, done);
  tell(a, Pass{10000, b});
  ASSERT_EQ(end.wait_for(60s), std::future_status::ready);
  end_actor(a);
  end_actor(b);
}

TEST_P(PatientSharingTest, ASystemThatDidNothingEnds) { const caf::actor_system system(config); }

INSTANTIATE_TEST_SUITE_P(Pools, PatientSharingTest,
                         testing::Values(Pool{1, 0us}, Pool{1, 50us}, Pool{3, 0us}, Pool{3, 50us},
                                         Pool{3, 2000us}),
                         [](const auto& info) {
                           return std::to_string(info.param.threads) + "ThreadsSpin" +
                                  std::to_string(info.param.spin.count()) + "us";
                         });

}  // namespace
}  // namespace penstock
