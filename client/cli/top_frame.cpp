#include "client/cli/top_frame.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <string_view>

#include "client/cli/quantity.hpp"

namespace penstock::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kBar = 20;
constexpr std::size_t kMostErrors = 5;
constexpr const char* kBold = "\033[1m";
constexpr const char* kRed = "\033[31m";
constexpr const char* kGreen = "\033[32m";
constexpr const char* kDim = "\033[2m";
constexpr const char* kPlain = "\033[0m";

/// Lines that fit. Colours take no room.
class Frame {
 public:
  explicit Frame(const FrameStyle& style) : style_(style) {}

  void line(std::string text, const char* color = "") {
    if (style_.lines > 0 && used_ >= style_.lines) return;
    ++used_;
    text.resize(std::min(text.size(), style_.columns));
    while (!text.empty() && text.back() == ' ') text.pop_back();
    const bool colored = style_.color && *color != '\0';
    text_ += colored ? color + text + kPlain : text;
    text_ += '\n';
  }
  void title(const std::string& text) {
    line("");
    line(text, kBold);
  }
  const std::string& text() const { return text_; }

 private:
  FrameStyle style_;
  std::size_t used_ = 0;
  std::string text_;
};

template <class T>
T get(const json& map, const char* key, T fallback) {
  const auto found = map.find(key);
  return found == map.end() || found->is_null() ? fallback : found->get<T>();
}
std::string word(const json& map, const char* key) { return get<std::string>(map, key, "-"); }
/// From outside: nothing that moves the cursor.
std::string clean(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}
double number(const json& map, const char* key) { return get<double>(map, key, 0); }

std::string bar(double share) {
  const auto filled = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * kBar + 0.5);
  return "[" + std::string(filled, '#') + std::string(kBar - filled, '.') + "]";
}

std::string rate(double bytes_per_s) {
  if (bytes_per_s >= 1e9) return fmt::format("{:.2f} GB/s", bytes_per_s / 1e9);
  if (bytes_per_s >= 1e6) return fmt::format("{:.1f} MB/s", bytes_per_s / 1e6);
  return fmt::format("{:.1f} kB/s", bytes_per_s / 1e3);
}

std::string duration(double s) {
  const auto seconds = static_cast<long>(s);
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 86400) return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{} d {} h", seconds / 86400, seconds / 3600 % 24);
}

/// The same card in the sample before; an empty map when it was not there.
json card_in(const json& status, const std::string& device, const std::string& name) {
  for (const json& each : get(status, "devices", json::array()))
    if (word(each, "name") == device)
      for (const json& card : get(each, "cards", json::array()))
        if (word(card, "name") == name) return card;
  return json::object();
}

class Rates {
 public:
  Rates(const NodeSample& now, const NodeSample& before)
      : seconds_(std::chrono::duration<double>(now.when - before.when).count()) {}
  /// Per second; 0 while there is no time between the samples, or after a restart.
  double of(const json& now, const json& before, const char* key) const {
    if (seconds_ <= 0 || !before.contains(key)) return 0;
    return std::max(0.0, (number(now, key) - number(before, key)) / seconds_);
  }

 private:
  double seconds_;
};

void show_head(Frame& frame, const NodeSample& now, const NodeSample& before, const Rates& rates) {
  const json& status = now.status;
  const auto transfers = get(status, "transfers", json::object());
  const auto old = get(before.status, "transfers", json::object());
  frame.line(fmt::format("penstock {}   node {}   provider {}   up {}{}",
                         word(status, "service_version"), word(status, "node"),
                         word(status, "provider"), duration(number(status, "uptime_s")),
                         get(status, "draining", false) ? "   DRAINING" : ""),
             kBold);
  frame.line(fmt::format(
      "transfers: {:.0f} running, {:.0f} queued, {:.0f} of others   ended: {:.0f} done ({:.0f}/s), "
      "{:.0f} failed, {:.0f} cancelled, {:.0f} expired",
      number(transfers, "running"), number(transfers, "queued"), number(transfers, "inbound"),
      number(transfers, "done"), rates.of(transfers, old, "done"), number(transfers, "failed"),
      number(transfers, "cancelled"), number(transfers, "expired")));
}

void show_cards(Frame& frame, const NodeSample& now, const NodeSample& before, const Rates& rates) {
  frame.title(fmt::format("{:<24} {:<5} {:>11} {:>11}  {:<22} {:>5}  {:>10} {:>8} {:>6}", "CARD",
                          "STATE", "WRITES", "READS", "OF THE LINK", "", "OUT", "EAGAIN/s",
                          "FAILED"));
  for (const json& device : get(now.status, "devices", json::array()))
    for (const json& card : get(device, "cards", json::array())) {
      const std::string name = word(card, "name");
      const json old = card_in(before.status, word(device, "name"), name);
      const double written = rates.of(card, old, "written_bytes");
      const double read = rates.of(card, old, "read_bytes");
      const double link = number(card, "link_gbps") * 1e9 / 8;
      const double share = link > 0 ? (written + read) / link : 0;
      const bool up = get(card, "up", true);
      frame.line(fmt::format("{:<24} {:<5} {:>11} {:>11}  {} {:>5}  {:>10} {:>8.0f} {:>6.0f}",
                             word(device, "name") + "/" + name, up ? "up" : "OUT", rate(written),
                             rate(read), link > 0 ? bar(share) : bar(0),
                             link > 0 ? fmt::format("{:.0f} %", share * 100) : "?",
                             format_bytes(get<std::uint64_t>(card, "posted_bytes", 0)),
                             rates.of(card, old, "again"), number(card, "failed")),
                 up ? "" : kRed);
      if (!up) frame.line("  " + clean(word(card, "last_error")), kRed);
    }
}

void show_members(Frame& frame, const json& nodes) {
  frame.title(fmt::format("{:<24} {:<13} {:>6}  {}", "MEMBER", "STATE", "LOAD", "LABELS"));
  for (const json& node : nodes) {
    const std::string state = word(node, "state");
    if (state == "self") continue;
    const bool good = state == "connected";
    std::string labels;
    const json given = get(node, "labels", json::object());
    for (const auto& [key, value] : given.items())
      labels += fmt::format("{}={} ", key, clean(value.get<std::string>()));
    frame.line(fmt::format("{:<24} {:<13} {:>6.0f}  {}", clean(word(node, "name")), state,
                           number(node, "load"), labels),
               good                                    ? ""
               : state == "dead" || state == "suspect" ? kRed
                                                       : kDim);
  }
}

void show_transfers(Frame& frame, const json& transfers) {
  frame.title(fmt::format("{:<20} {:<11} {:<6} {:<28} {:<22} {:>5} {:>11}", "TRANSFER", "STATE",
                          "LANE", "FROM -> TO", "PROGRESS", "", "RATE"));
  for (const json& transfer : transfers) {
    const bool under_way = transfer.contains("total_bytes");
    const double bytes = number(transfer, "bytes");
    const double total = under_way ? number(transfer, "total_bytes") : bytes;
    const double seconds = number(transfer, "elapsed_us") / 1e6;
    const std::string state = word(transfer, "state");
    const std::string arrow = word(transfer, "direction") == "read" ? "<-" : "->";
    // Of what ended otherwise it is not known how much it was to be.
    const bool is_known = under_way || state == "done";
    const double share = !is_known ? 0 : total > 0 ? bytes / total : 1;
    frame.line(fmt::format("{:<20} {:<11} {:<6} {:<28} {} {:>5} {:>11}",
                           get<std::uint64_t>(transfer, "id", 0), state, word(transfer, "lane"),
                           clean(word(transfer, "region") + " " + arrow + " " +
                                 word(transfer, "node") + ":" + word(transfer, "remote_region")),
                           bar(share), is_known ? fmt::format("{:.0f} %", share * 100) : "",
                           rate(seconds > 0 ? bytes / seconds : 0)),
               under_way         ? ""
               : state == "done" ? kGreen
                                 : kRed);
  }
}

void show_errors(Frame& frame, const json& errors) {
  if (errors.empty()) return;
  frame.title("RECENT ERRORS");
  for (std::size_t i = 0; i < std::min(errors.size(), kMostErrors); ++i) {
    const auto at = static_cast<std::time_t>(number(errors[i], "unix_ms") / 1000);
    frame.line(fmt::format("{:%H:%M:%S} {}: {}", fmt::localtime(at), word(errors[i], "what"),
                           clean(word(errors[i], "words"))),
               kRed);
  }
}

}  // namespace

std::string top_frame(const NodeSample& now, const NodeSample& before, const FrameStyle& style) {
  Frame frame(style);
  const Rates rates(now, before);
  show_head(frame, now, before, rates);
  show_cards(frame, now, before, rates);
  show_members(frame, now.nodes);
  // Few and important, so before what may be long.
  show_errors(frame, get(now.status, "recent_errors", json::array()));
  show_transfers(frame, now.transfers);
  return frame.text();
}

}  // namespace penstock::cli
