#include "actors/node/drain.hpp"

#include <gtest/gtest.h>

namespace penstock {
namespace {

using namespace std::chrono_literals;
using Next = Drain::Next;

constexpr Milliseconds kSettle{500};

TEST(Drain, TakesWhatTheOthersAcceptedBeforeTheyKnewAndShutsTheDoorThen) {
  Drain drain(kSettle);
  TimePoint now{1h};
  EXPECT_EQ(drain.look(true, now), Next::kWait);
  EXPECT_EQ(drain.look(false, now += 10ms), Next::kWait);   // a gap between two of a peer's queue
  EXPECT_EQ(drain.look(true, now += 400ms), Next::kWait);   // there is the next
  EXPECT_EQ(drain.look(false, now += 200ms), Next::kWait);  // quiet from here
  EXPECT_EQ(drain.look(false, now += 499ms), Next::kWait);
  EXPECT_EQ(drain.look(false, now += 1ms), Next::kShut);
  EXPECT_EQ(drain.look(false, now), Next::kDone);
}

TEST(Drain, WaitsForWhatSlippedInBeforeTheDoorWasShut) {
  Drain drain(kSettle);
  TimePoint now{1h};
  drain.look(false, now);
  EXPECT_EQ(drain.look(false, now += kSettle), Next::kShut);
  EXPECT_EQ(drain.look(true, now += 1ms), Next::kWait);
  EXPECT_EQ(drain.look(false, now += 1ms), Next::kDone);  // once: the door stays shut
}

TEST(Drain, ANodeWithoutOthersIsDoneAtOnce) {
  Drain drain(Milliseconds(0));
  EXPECT_EQ(drain.look(false, TimePoint{1h}), Next::kShut);
  EXPECT_EQ(drain.look(false, TimePoint{1h}), Next::kDone);
}

TEST(Drain, AtTheDeadlineTheDoorIsShutWhateverIsInFlight) {
  Drain drain(kSettle);
  TimePoint now{1h};
  EXPECT_EQ(drain.look(true, now), Next::kWait);
  drain.shut();
  EXPECT_EQ(drain.look(true, now), Next::kWait);
  EXPECT_EQ(drain.look(false, now), Next::kDone);
}

}  // namespace
}  // namespace penstock
