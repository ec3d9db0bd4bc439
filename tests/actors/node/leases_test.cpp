#include "actors/node/leases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

class ALease : public testing::Test {
 protected:
  TimePoint start{};
  Leases leases;
};

TEST_F(ALease, EndsWhenItsClientIsNotHeardInTime) {
  leases.grant("a", 300ms, start);
  leases.grant("b", 1000ms, start);
  EXPECT_EQ(leases.next(), start + 300ms);
  EXPECT_THAT(leases.expired(start + 299ms, start + 299ms), IsEmpty());
  EXPECT_THAT(leases.expired(start + 300ms, start + 300ms), ElementsAre("a"));
  EXPECT_EQ(leases.next(), start + 1000ms);
}

TEST_F(ALease, IsRenewedByWhateverItsClientAsks) {
  leases.grant("a", 300ms, start);
  leases.heard("a", start + 200ms);
  leases.heard("nobody", start + 200ms);
  EXPECT_THAT(leases.expired(start + 300ms, start + 300ms), IsEmpty());
  EXPECT_EQ(leases.next(), start + 500ms);
}

TEST_F(ALease, IsLookedAtInItsTimeHoweverOftenItsClientIsHeardOrAsksForAnother) {
  leases.grant("a", 10s, start);
  leases.grant("b", 300ms, start);
  for (int i = 1; i <= 100; ++i) leases.heard("b", start + i * 2ms);
  EXPECT_EQ(leases.next(), start + 300ms) << "no earlier, and nothing was sorted meanwhile";
  EXPECT_THAT(leases.expired(leases.next(), leases.next()), IsEmpty());
  EXPECT_EQ(leases.next(), start + 500ms);
  leases.grant("a", 100ms, start + 300ms);
  EXPECT_EQ(leases.next(), start + 400ms);
  EXPECT_THAT(leases.expired(start + 400ms, start + 400ms), ElementsAre("a"));
  EXPECT_THAT(leases.expired(start + 500ms, start + 500ms), ElementsAre("b"));
  EXPECT_EQ(leases.next(), TimePoint::max());
}

TEST_F(ALease, OfNothingIsNone) {
  leases.grant("a", 300ms, start);
  leases.grant("a", 0ms, start);
  EXPECT_EQ(leases.next(), TimePoint::max());
}

// What the clients said while this process stood still is not read yet when it goes on.
TEST_F(ALease, DoesNotEndWhileThisProcessStoodStill) {
  leases.grant("a", 300ms, start);
  EXPECT_THAT(leases.expired(start + 300ms, start + 90s), IsEmpty());
  EXPECT_GT(leases.next(), start + 90s - 1ms);
  EXPECT_THAT(leases.expired(leases.next(), leases.next() + 1ms), ElementsAre("a"));
}

}  // namespace
}  // namespace penstock
