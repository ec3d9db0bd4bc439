// The ladder's chart, written by hand: text, rectangles and lines need no library.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "client/cli/quantity.hpp"
#include "client/workload/ladder_report.hpp"

namespace penstock::workload {
namespace {

constexpr double kWidth = 760;
constexpr double kLabels = 180;  // left of the bars
constexpr double kValues = 130;  // right of the longest bar
constexpr double kTop = 64;
constexpr double kBar = 14;
constexpr double kBarGap = 3;
constexpr double kStepGap = 16;
constexpr double kBottom = 40;
constexpr double kBars = kWidth - kLabels - kValues;

// Bars of equal lightness on white and on black; the rest follows the reader's colour scheme, with
// a ground of its own, since the page around it may not.
constexpr const char* kStyle = R"(<style>
.bg { fill: #ffffff; }
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 15px; font-weight: 600; }
.note, .axis { font-size: 11px; fill: #57606a; }
.grid { stroke: #d0d7de; }
.spread { stroke: #24292f; }
.page0 { fill: #2f81f7; } .page1 { fill: #d9822b; } .page2 { fill: #2da44e; } .page3 { fill: #8957e5; }
@media (prefers-color-scheme: dark) {
.bg { fill: #12171d; } text { fill: #e6edf3; } .note, .axis { fill: #9da7b3; } .grid { stroke: #3d444d; } .spread { stroke: #e6edf3; }
}
</style>
<rect class="bg" width="100%" height="100%" rx="8"/>
)";
constexpr std::size_t kColours = 4;

std::string escaped(const std::string& text) {
  std::string safe;
  for (char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return safe;
}

/// 1, 2 or 5 times a power of ten: at most six lines up to `largest`.
double grid_step(double largest) {
  double step = std::pow(10, std::floor(std::log10(largest / 6)));
  for (double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (largest / (step * factor) <= 6) return step * factor;
  }
  return step * 10;
}

class Chart {
 public:
  explicit Chart(const LadderReport& report) : report_(report) {
    for (const auto& rung : report.rungs) {
      for (const auto& cell : rung.cells) largest_ = std::max(largest_, cell.gbps.max);
    }
  }

  std::string text() {
    double y = kTop;
    std::string steps;
    for (std::size_t i = 0; i < report_.rungs.size(); ++i) steps += step(report_.rungs[i], y);
    double height = y + kBottom;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
               "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\">\n",
               kWidth, height) +
           kStyle + heading() + grid(y) + steps + "</svg>\n";
  }

 private:
  double length(double gbps) const { return largest_ > 0 ? gbps / largest_ * kBars : 0; }

  std::string heading() const {
    auto text = fmt::format(
        "<text class=\"title\" x=\"12\" y=\"24\">What each step gained ({}, {} a round, {} rounds)"
        "</text>\n",
        escaped(report_.provider), cli::format_bytes(report_.round_bytes), report_.rounds);
    double x = kLabels;
    for (std::size_t i = 0; i < report_.page_bytes.size(); ++i, x += 110) {
      text += fmt::format(
          "<rect class=\"key page{}\" x=\"{:.0f}\" y=\"38\" width=\"10\" height=\"10\"/>"
          "<text class=\"axis\" x=\"{:.0f}\" y=\"47\">{} pages</text>\n",
          i % kColours, x, x + 15, cli::format_bytes(report_.page_bytes[i]));
    }
    return text;
  }

  std::string grid(double bottom) const {
    std::string text;
    if (largest_ <= 0) return text;
    double step = grid_step(largest_);
    for (double at = 0; at <= largest_; at += step) {
      double x = kLabels + length(at);
      text += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.0f}\" x2=\"{0:.1f}\" y2=\"{2:.0f}\"/>"
          "<text class=\"axis\" x=\"{0:.1f}\" y=\"{3:.0f}\" "
          "text-anchor=\"middle\">{4:g}{5}</text>\n",
          x, kTop - 6, bottom, bottom + 16, at, at == 0 ? " Gbps" : "");
    }
    return text;
  }

  std::string step(const LadderRung& rung, double& y) const {
    double first = y;
    std::string text;
    for (std::size_t i = 0; i < rung.cells.size(); ++i, y += kBar + kBarGap) {
      text += bar(rung.cells[i], i, y);
    }
    if (!rung.skipped.empty()) {
      text += fmt::format("<text class=\"note\" x=\"{:.0f}\" y=\"{:.1f}\">skipped: {}</text>\n",
                          kLabels + 4, y + 11, escaped(rung.skipped));
      y += kBar + kBarGap;
    }
    auto label =
        fmt::format("<text x=\"12\" y=\"{:.1f}\">{}<title>{}</title></text>\n",
                    (first + y - kBarGap) / 2 + 5, escaped(rung.name), escaped(rung.change));
    y += kStepGap;
    return label + text;
  }

  std::string bar(const LadderCell& cell, std::size_t colour, double y) const {
    const auto& gbps = cell.gbps;
    auto words = fmt::format("{:.2f}", gbps.median);
    if (cell.gain.median > 0) words += fmt::format(" ({:.2f}x)", cell.gain.median);
    return fmt::format(
        "<rect class=\"bar page{}\" x=\"{:.0f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\"/>"
        "<line class=\"spread\" x1=\"{:.2f}\" y1=\"{:.1f}\" x2=\"{:.2f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        colour % kColours, kLabels, y, length(gbps.median), kBar, kLabels + length(gbps.min),
        y + kBar / 2, kLabels + length(gbps.max), y + kBar / 2, kLabels + length(gbps.max) + 6,
        y + 12, words);
  }

  const LadderReport& report_;
  double largest_ = 0;
};

}  // namespace

std::string ladder_svg(const LadderReport& report) { return Chart(report).text(); }

}  // namespace penstock::workload
