#include "client/workload/replay_report.hpp"

#include <gtest/gtest.h>

namespace penstock::workload {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point at(int seconds) { return Clock::time_point(std::chrono::seconds(seconds)); }

TEST(BusyTime, CountsOverlapOnce) {
  EXPECT_DOUBLE_EQ(busy_seconds({{at(5), at(8)}, {at(1), at(3)}, {at(2), at(4)}}), 6);
  EXPECT_DOUBLE_EQ(busy_seconds({{at(1), at(9)}, {at(2), at(3)}, {at(8), at(10)}}), 9);
  EXPECT_DOUBLE_EQ(busy_seconds({{at(1), at(1)}}), 0);
  EXPECT_DOUBLE_EQ(busy_seconds({}), 0);
}

TEST(ReplayReport, IsVerifiedOnlyWhenEveryMovedPageWasCompared) {
  ReplayReport report;
  report.pages = 10;
  report.verified_pages = 10;
  EXPECT_TRUE(report.verified());
  report.verified_pages = 9;
  EXPECT_FALSE(report.verified());
  report.verified_pages = 10;
  report.different_pages = 1;
  EXPECT_FALSE(report.verified());
  report.different_pages = 0;
  report.verify = false;
  EXPECT_FALSE(report.verified());
}

TEST(ReplayReport, JsonHasWhatScriptsRead) {
  ReplayReport report;
  report.bytes = 1'000'000'000;
  report.busy_s = 2;
  report.differences = {"page 1"};
  auto json = to_json(report);
  EXPECT_DOUBLE_EQ(json.at("gbps"), 4);
  for (const char* key : {"requests", "blocks", "pages", "bytes", "verified_pages",
                          "different_pages", "decoder_hits", "queueing_s", "wall_s"}) {
    EXPECT_TRUE(json.at(key).is_number()) << key;
  }
  for (const char* key : {"p50_ms", "p99_ms", "max_ms"}) {
    EXPECT_TRUE(json.at("hand_over").at(key).is_number()) << key;
    EXPECT_TRUE(json.at("queueing").at(key).is_number()) << key;
  }
  EXPECT_TRUE(json.at("verified").is_boolean());
  EXPECT_EQ(json.at("differences").at(0), "page 1");
}

}  // namespace
}  // namespace penstock::workload
