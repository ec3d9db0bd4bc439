// The ladder's table and chart from fixed numbers.
#include "client/workload/ladder_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>

namespace penstock::workload {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kPage = 65536;

LadderReport three_steps() {
  LadderReport report{.provider = "tcp",
                      .round_bytes = 256 << 20,
                      .rounds = 3,
                      .page_bytes = {kPage, 4096},
                      .rungs = {},
                      .verified = true};
  const auto large = ladder_cells(kPage, {{2, 1, 3}, {}, {8, 6, 6}});
  const auto small = ladder_cells(4096, {{1, 1, 1}, {}, {1, 2, 1.5}});
  report.rungs = {{"direct posting", "one at a time", "", 900, {large[0], small[0]}},
                  {"more cards", "a second <card> & its \"friends\"", "no 127.0.0.2 here", 0, {}},
                  {"queue", "16 at once", "", 450, {large[2], small[2]}}};
  return report;
}

TEST(LadderCells, GainOverTheNearestStepThatWasNotSkippedRoundByRound) {
  const auto cells = ladder_cells(kPage, {{2, 1, 3}, {}, {8, 6, 6}});
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_EQ(cells[0].gbps.median, 2);
  EXPECT_EQ(cells[0].gain.median, 0);
  EXPECT_EQ(cells[1].gbps.median, 0);
  EXPECT_EQ(cells[2].gbps.median, 6);
  EXPECT_EQ(cells[2].gain.median, 4);  // of 4, 6 and 2; the medians would say 3
  EXPECT_EQ(cells[2].gain.min, 2);
}

TEST(LadderTable, HasARowForEachStepAndSaysNothingOfSkippedOnes) {
  const auto rows = ladder_table(three_steps());
  ASSERT_EQ(rows.size(), 4u);
  for (const auto& row : rows) EXPECT_EQ(row.size(), 10u);
  EXPECT_THAT(rows[0], testing::Contains("64.0 KiB Gbps"));
  EXPECT_THAT(rows[1], ElementsAre("direct posting", "900", "2.00", "1.00-3.00", "-", "0.000",
                                   "1.00", "1.00-1.00", "-", "0.000"));
  EXPECT_THAT(rows[2], testing::Contains("-").Times(9));
  EXPECT_EQ(rows[3][4], "4.00");
}

TEST(LadderJson, SaysWhyAStepWasSkipped) {
  const auto json = to_json(three_steps());
  EXPECT_EQ(json.at("steps").at(1).at("skipped"), "no 127.0.0.2 here");
  EXPECT_FALSE(json.at("steps").at(1).contains("pages"));
  EXPECT_EQ(json.at("steps").at(2).at("pages").at(0).at("gain"), 4.0);
}

/// "" when `xml` is well-formed, as far as a chart goes: tags nest, attributes are quoted, & and <
/// are escaped.
std::string complaint(const std::string& xml) {
  static const std::regex kTag(R"(</?([A-Za-z]+)((?:\s+[A-Za-z0-9:_-]+="[^"<]*")*)\s*(/?)>)");
  static const std::regex kStray(R"(&(?!amp;|lt;|gt;|quot;)|[<>])");
  std::vector<std::string> open;
  auto at = xml.cbegin();
  for (std::sregex_iterator tag(xml.begin(), xml.end(), kTag), end; tag != end; ++tag) {
    const std::string before(at, (*tag)[0].first);
    if (std::regex_search(before, kStray)) return "stray markup in: " + before;
    at = (*tag)[0].second;
    if (tag->str()[1] == '/') {
      if (open.empty() || open.back() != tag->str(1)) return "not open: " + tag->str();
      open.pop_back();
    } else if (tag->str(3).empty()) {
      open.push_back(tag->str(1));
    }
  }
  if (std::string(at, xml.cend()).find_first_not_of(" \n") != std::string::npos) return "a tail";
  return open.empty() ? "" : "never closed: " + open.back();
}

TEST(Complaint, FindsWhatIsNotWellFormed) {
  EXPECT_EQ(complaint("<a x=\"1\"><b/>text &amp; more</a>"), "");
  for (const char* bad : {"<a>", "<a></b>", "<a>x & y</a>", "<a x=1></a>", "<a>1 < 2</a>", "</a>"})
    EXPECT_NE(complaint(bad), "") << bad;
}

TEST(LadderSvg, IsWellFormedWhateverTheNamesAre) {
  const auto svg = ladder_svg(three_steps());
  EXPECT_EQ(complaint(svg), "");
  EXPECT_THAT(svg, HasSubstr("xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, HasSubstr("a second &lt;card&gt; &amp; its &quot;friends&quot;"));
  EXPECT_THAT(svg, HasSubstr("skipped: no 127.0.0.2 here"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
}

std::vector<double> bar_widths(const std::string& svg) {
  static const std::regex kBar(R"(<rect class="bar[^>]*width="([0-9.]+)\")");
  std::vector<double> widths;
  for (std::sregex_iterator bar(svg.begin(), svg.end(), kBar), end; bar != end; ++bar)
    widths.push_back(std::stod(bar->str(1)));
  return widths;
}

TEST(LadderSvg, BarsAreAsLongAsTheMediansAre) {
  const auto widths = bar_widths(ladder_svg(three_steps()));
  ASSERT_EQ(widths.size(), 4u);  // two steps of two page sizes
  const double unit = widths[0] / 2;
  EXPECT_NEAR(widths[1], 1 * unit, 0.02);
  EXPECT_NEAR(widths[2], 6 * unit, 0.05);
  EXPECT_NEAR(widths[3], 1.5 * unit, 0.02);
}

TEST(LadderSvg, OfNothingIsStillAChart) {
  LadderReport report;
  report.provider = "tcp";
  report.page_bytes = {kPage};
  report.rungs = {{"direct posting", "", "", 0, {LadderCell{}}}};
  const auto svg = ladder_svg(report);
  EXPECT_EQ(complaint(svg), "");
  EXPECT_THAT(bar_widths(svg), ElementsAre(0.0));
}

}  // namespace
}  // namespace penstock::workload
