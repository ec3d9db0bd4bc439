// The stages of a transfer: one after the other, and together the whole.
#include "actors/protocol/stages.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace penstock {
namespace {

using namespace std::chrono_literals;

const Stages::TimePoint kStart{1h};

std::chrono::nanoseconds sum(const Stages& stages, Stages::TimePoint now) {
  const auto totals = stages.totals(now);
  return std::accumulate(totals.begin(), totals.end(), 0ns);
}

Stages ordinary() {
  Stages stages;
  stages.enter(Stage::kAdmission, kStart);
  stages.enter(Stage::kQueue, kStart + 10us);
  stages.enter(Stage::kMetadata, kStart + 15us);
  stages.enter(Stage::kPosting, kStart + 100us);
  stages.enter(Stage::kCompletion, kStart + 900us);
  stages.enter(Stage::kNotification, kStart + 950us);
  stages.finish(kStart + 1000us);
  return stages;
}

TEST(Stages, SumUpToTheWhole) {
  const Stages stages = ordinary();
  EXPECT_EQ(sum(stages, stages.end()), 1000us);
  EXPECT_EQ(stages.totals(stages.end())[static_cast<std::size_t>(Stage::kMetadata)], 85us);
}

TEST(Stages, WhatThePollerTellsLaterSplitsTheStageThatItWas) {
  Stages stages = ordinary();
  stages.split(Stage::kPosting, kStart + 130us, Stage::kWire);
  const auto totals = stages.totals(stages.end());
  EXPECT_EQ(totals[static_cast<std::size_t>(Stage::kPosting)], 30us);
  EXPECT_EQ(totals[static_cast<std::size_t>(Stage::kWire)], 770us);
  EXPECT_EQ(sum(stages, stages.end()), 1000us);
}

TEST(Stages, ASplitOutsideOfItsStageIsIgnored) {
  Stages stages = ordinary();
  const auto before = stages.spans().size();
  stages.split(Stage::kPosting, kStart + 50us, Stage::kWire);
  stages.split(Stage::kPosting, kStart + 901us, Stage::kWire);
  stages.split(Stage::kCopy, kStart + 500us, Stage::kWire);
  EXPECT_EQ(stages.spans().size(), before);
}

TEST(Stages, NeverRunBackwards) {
  Stages stages;
  stages.enter(Stage::kQueue, kStart);
  stages.enter(Stage::kMetadata, kStart - 5us);
  stages.finish(kStart - 7us);
  EXPECT_EQ(stages.spans()[1].begin, kStart);
  EXPECT_EQ(sum(stages, stages.end()), 0ns);
}

TEST(Stages, LastUntilNowWhileTheyAreNotFinished) {
  Stages stages;
  stages.enter(Stage::kQueue, kStart);
  stages.enter(Stage::kMetadata, kStart + 1ms);
  EXPECT_EQ(sum(stages, kStart + 5ms), 5ms);
}

TEST(Stages, AreBoundedHoweverOftenItIsRetried) {
  Stages stages;
  for (int i = 0; i < 1000; ++i) {
    stages.enter(Stage::kWire, kStart + std::chrono::microseconds(2 * i));
    stages.enter(Stage::kRecovery, kStart + std::chrono::microseconds(2 * i + 1));
  }
  stages.enter(Stage::kNotification, kStart + 3ms);
  stages.finish(kStart + 4ms);
  EXPECT_LE(stages.spans().size(), Stages::kMostSpans);
  EXPECT_EQ(stages.spans().back().stage, Stage::kNotification);
  EXPECT_EQ(sum(stages, stages.end()), 4ms);
}

}  // namespace
}  // namespace penstock
