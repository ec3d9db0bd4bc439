#include "client/workload/demo_report.hpp"

#include <gtest/gtest.h>

namespace penstock::workload {
namespace {

MeasuredPair pair(double ours_s, double raw_s) {
  return {{.bytes = 1'000'000'000, .writes = 1000, .seconds = ours_s},
          {.bytes = 1'000'000'000, .writes = 1000, .seconds = raw_s}};
}

DemoReport report() {
  DemoReport report;
  report.page_bytes = 65536;
  report.directions = {{"a", "b", {pair(1, 0.9), pair(1, 0.9)}, {{"lo", 2'000'000'000, 2000}}},
                       {"b", "a", {pair(2, 1)}, {}}};
  report.together = {pair(2, 1)};
  report.expected_pages = report.verified_pages = 10;
  return report;
}

TEST(DemoReport, JsonHasWhatScriptsRead) {
  auto json = to_json(report());
  EXPECT_EQ(json.at("verified"), true);
  EXPECT_DOUBLE_EQ(json.at("gbps"), 4);
  EXPECT_DOUBLE_EQ(json.at("ratio"), 0.5);
  EXPECT_DOUBLE_EQ(json.at("raw_gbps"), 8);
  const auto& first = json.at("directions").at(0);
  EXPECT_EQ(first.at("from"), "a");
  EXPECT_EQ(first.at("bytes"), 2'000'000'000u);
  EXPECT_DOUBLE_EQ(first.at("ratio"), 0.9);
  EXPECT_EQ(first.at("cards").at(0).at("name"), "lo");
  EXPECT_DOUBLE_EQ(first.at("cards").at(0).at("gbps"), 8);
  EXPECT_DOUBLE_EQ(first.at("cards").at(0).at("writes_per_s"), 1000);
  for (const char* key : {"p50_us", "p99_us"}) EXPECT_TRUE(json.at("small").at(key).is_number());
}

TEST(DemoReport, IsVerifiedOnlyWhenEveryPageIs) {
  auto some = report();
  some.verified_pages = 9;
  EXPECT_FALSE(some.verified());
  some = report();
  some.different_pages = 1;
  EXPECT_FALSE(some.verified());
  EXPECT_EQ(to_json(some).at("verified"), false);
  EXPECT_FALSE(DemoReport{}.verified()) << "nothing moved proves nothing";
}

}  // namespace
}  // namespace penstock::workload
