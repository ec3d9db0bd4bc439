#include "client/cli/transfer_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "client/cli/quantity.hpp"

namespace penstock::cli {
namespace {

using client::TransferTrace;
using nlohmann::json;

constexpr std::size_t kBarWidth = 40;
constexpr int kProcess = 1;
constexpr int kStagesTrack = 1;
constexpr int kFirstCardTrack = 2;

std::string time_text(std::uint64_t ns) {
  if (ns < 1'000'000) return fmt::format("{:.1f} us", static_cast<double>(ns) / 1e3);
  if (ns < 1'000'000'000) return fmt::format("{:.2f} ms", static_cast<double>(ns) / 1e6);
  return fmt::format("{:.2f} s", static_cast<double>(ns) / 1e9);
}

/// Where in the whole it lies; a stage is at least one mark long.
std::string bar(std::uint64_t at, std::uint64_t took, std::uint64_t total) {
  if (total == 0) return "";
  const auto place = [&](std::uint64_t ns) {
    return static_cast<std::size_t>(static_cast<double>(ns) / static_cast<double>(total) *
                                    static_cast<double>(kBarWidth));
  };
  const std::size_t from = std::min(place(at), kBarWidth - 1);
  const std::size_t to = std::clamp(place(at + took), from + 1, kBarWidth);
  return std::string(from, '.') + std::string(to - from, '#') + std::string(kBarWidth - to, '.');
}

/// When the first operation left; the whole's start when none did.
std::uint64_t wire_start(const TransferTrace& trace) {
  const auto wire = std::ranges::find(trace.stages, "wire", &TransferTrace::Stage::name);
  return wire == trace.stages.end() ? 0 : wire->at_ns;
}

double microseconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e3; }

json name_track(const char* kind, int track, const std::string& name) {
  return {
      {"name", kind}, {"ph", "M"}, {"pid", kProcess}, {"tid", track}, {"args", {{"name", name}}}};
}

}  // namespace

std::string trace_text(const TransferTrace& trace) {
  std::string text = fmt::format("transfer {}: {}, {} of {}, {} {} {}, {}, path {}\n\n", trace.id,
                                 trace.state, trace.direction, format_bytes(trace.bytes),
                                 trace.region, trace.direction == "read" ? "<-" : "->",
                                 trace.node + ":" + trace.remote_region, trace.lane, trace.path);
  for (const auto& stage : trace.stages)
    text += fmt::format("  {:<13}{:>10}  {}\n", stage.name, time_text(stage.took_ns),
                        bar(stage.at_ns, stage.took_ns, trace.total_ns));
  text += fmt::format("  {:<13}{:>10}\n", "total", time_text(trace.total_ns));
  const std::uint64_t start = wire_start(trace);
  for (const auto& card : trace.cards) {
    if (card.bytes == 0) continue;
    text += fmt::format("\n  card {}: {} in {} operations", card.name, format_bytes(card.bytes),
                        card.writes);
    if (card.last_ns <= start) continue;
    text +=
        fmt::format(", the last completed {} after the first was posted ({:.2f} GB/s)",
                    time_text(card.last_ns - start),
                    static_cast<double>(card.bytes) / static_cast<double>(card.last_ns - start));
  }
  return trace.cards.empty() ? text : text + "\n";
}

std::string trace_events(const TransferTrace& trace) {
  const auto base = static_cast<double>(trace.started_unix_us);
  json events = json::array();
  events.push_back(name_track("process_name", kStagesTrack, fmt::format("transfer {}", trace.id)));
  events.push_back(name_track("thread_name", kStagesTrack, "stages"));
  const json about = {{"state", trace.state},   {"node", trace.node},
                      {"region", trace.region}, {"remote_region", trace.remote_region},
                      {"bytes", trace.bytes},   {"direction", trace.direction},
                      {"priority", trace.lane}, {"path", trace.path}};
  for (const auto& stage : trace.stages)
    events.push_back({{"name", stage.name},
                      {"cat", "stage"},
                      {"ph", "X"},
                      {"pid", kProcess},
                      {"tid", kStagesTrack},
                      {"ts", base + microseconds(stage.at_ns)},
                      {"dur", microseconds(stage.took_ns)},
                      {"args", about}});
  const std::uint64_t start = wire_start(trace);
  for (std::size_t i = 0; i < trace.cards.size(); ++i) {
    const auto& card = trace.cards[i];
    const int track = kFirstCardTrack + static_cast<int>(i);
    events.push_back(name_track("thread_name", track, "card " + card.name));
    if (card.last_ns <= start) continue;
    events.push_back({{"name", format_bytes(card.bytes)},
                      {"cat", "card"},
                      {"ph", "X"},
                      {"pid", kProcess},
                      {"tid", track},
                      {"ts", base + microseconds(start)},
                      {"dur", microseconds(card.last_ns - start)},
                      {"args", {{"bytes", card.bytes}, {"operations", card.writes}}}});
  }
  return json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}.dump(1);
}

}  // namespace penstock::cli
