#include "client/workload/measurement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/workload/page_check.hpp"

namespace penstock::workload {
namespace {

using testing::HasSubstr;

TEST(Percentile, IsTheSmallestValueThatCoversTheShare) {
  std::vector<double> values;
  for (int i = 1; i <= 200; ++i) values.push_back(i);
  EXPECT_EQ(percentile(values, 50), 100);
  EXPECT_EQ(percentile(values, 99), 198);
  EXPECT_EQ(percentile(values, 100), 200);
  EXPECT_EQ(percentile({7}, 1), 7);
  EXPECT_EQ(percentile({}, 50), 0);
}

TEST(Latency, NeedsNoOrder) {
  auto latency = latency_of({3, 1, 2});
  EXPECT_EQ(latency.count, 3u);
  EXPECT_EQ(latency.p50, 2);
  EXPECT_EQ(latency.p99, 3);
  EXPECT_EQ(latency.max, 3);
  EXPECT_EQ(latency_of({}).max, 0);
}

TEST(Spread, MedianOfAnEvenNumberLiesBetweenTheMiddleTwo) {
  EXPECT_EQ(spread_of({4, 1, 3, 2}).median, 2.5);
  EXPECT_EQ(spread_of({5, 1, 3}).median, 3);
  EXPECT_EQ(spread_of({5, 1, 3}).min, 1);
  EXPECT_EQ(spread_of({5, 1, 3}).max, 5);
  EXPECT_EQ(spread_of({}).median, 0);
}

TEST(Measurement, RatesAreDecimal) {
  Measurement round{.bytes = 1'000'000'000, .writes = 1000, .seconds = 2, .cpu_seconds = 3};
  EXPECT_DOUBLE_EQ(round.gbps(), 4);
  EXPECT_DOUBLE_EQ(round.writes_per_s(), 500);
  EXPECT_DOUBLE_EQ(round.cpu_s_per_gb(), 3);
  EXPECT_EQ(Measurement{}.gbps(), 0);
}

// The machine slows down between the pairs; the ratio of the medians would show 1.
TEST(BenchRow, RatioIsTheMedianOfThePairs) {
  auto pair = [](double ours_s, double raw_s) {
    return MeasuredPair{{.bytes = 1'000'000'000, .writes = 1, .seconds = ours_s},
                        {.bytes = 1'000'000'000, .writes = 1, .seconds = raw_s}};
  };
  auto row = bench_row(65536, "write", {pair(1, 0.5), pair(2, 1), pair(1, 2)}, true);
  EXPECT_DOUBLE_EQ(row.ratio.median, 0.5);
  EXPECT_DOUBLE_EQ(row.ratio.min, 0.5);
  EXPECT_DOUBLE_EQ(row.ratio.max, 2);
  EXPECT_DOUBLE_EQ(row.gbps.median, 8);
  EXPECT_DOUBLE_EQ(row.raw_gbps.median, 8);
}

TEST(BenchRow, JsonHasWhatScriptsRead) {
  auto json = to_json(bench_row(4096, "read", {{{4096, 1, 1, 1}, {4096, 1, 2, 1}}}, false));
  for (const char* key : {"gbps", "writes_per_s", "cpu_s_per_gb", "raw_gbps", "raw_writes_per_s",
                          "raw_cpu_s_per_gb", "ratio", "ratio_min", "ratio_max"}) {
    EXPECT_TRUE(json.at(key).is_number()) << key;
  }
  EXPECT_EQ(json.at("page_bytes"), 4096);
  EXPECT_EQ(json.at("direction"), "read");
  EXPECT_EQ(json.at("verified"), false);
  EXPECT_EQ(json.at("pairs"), 1);
}

TEST(PageCheck, FindsThePageThatDiffers) {
  std::vector<std::uint32_t> from{2, 0, 1}, to{5, 6, 7};
  std::vector<std::uint64_t> source{10, 11, 12};
  EXPECT_TRUE(compare_pages(from, to, source, std::vector<std::uint64_t>{12, 10, 11}).empty());
  auto different = compare_pages(from, to, source, std::vector<std::uint64_t>{12, 11, 11});
  ASSERT_EQ(different.size(), 1u);
  EXPECT_EQ(different[0].index, 1u);
  EXPECT_EQ(different[0].source_page, 0u);
  EXPECT_EQ(different[0].destination_page, 6u);
  EXPECT_THAT(different[0].text(), HasSubstr("destination page 6 has digest 000000000000000b"));
}

TEST(PageCheck, EqualPagesCannotProveAnything) {
  EXPECT_TRUE(all_distinct({3, 1, 2}));
  EXPECT_FALSE(all_distinct({3, 1, 3}));
}

}  // namespace
}  // namespace penstock::workload
