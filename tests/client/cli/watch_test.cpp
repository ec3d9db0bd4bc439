// What `penstock trace` and `penstock top` print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "client/cli/top_frame.hpp"
#include "client/cli/transfer_trace.hpp"

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

client::TransferTrace sample_trace() {
  client::TransferTrace trace;
  trace.id = 17;
  trace.state = "done";
  trace.node = "b";
  trace.region = "kv";
  trace.remote_region = "pool";
  trace.direction = "write";
  trace.lane = "bulk";
  trace.path = "direct";
  trace.bytes = 1 << 20;
  trace.started_unix_us = 1'700'000'000'000'000;
  trace.total_ns = 1'000'000;
  trace.stages = {
      {"admission", 0, 100'000}, {"wire", 100'000, 850'000}, {"completion", 950'000, 50'000}};
  trace.cards = {{"eth0", 1 << 20, 16, 900'000}, {"eth1", 0, 0, 0}};
  return trace;
}

TEST(Trace, NamesEachStageAndTheCardsThatMovedSomething) {
  const auto text = trace_text(sample_trace());
  EXPECT_THAT(text, HasSubstr("transfer 17: done, write of 1.0 MiB"));
  EXPECT_THAT(text, HasSubstr("wire           850.0 us  ....##################################.."));
  EXPECT_THAT(text, HasSubstr("total           1.00 ms"));
  EXPECT_THAT(text, HasSubstr("card eth0: 1.0 MiB in 16 operations, the last completed 800.0 us"));
  EXPECT_THAT(text, Not(HasSubstr("eth1")));
}

TEST(Trace, EventsAreWhatTheViewersTake) {
  const auto document = json::parse(trace_events(sample_trace()));
  double sum = 0;
  double end = 0;
  int cards = 0;
  for (const auto& event : document.at("traceEvents")) {
    EXPECT_TRUE(event.at("ph") == "X" || event.at("ph") == "M") << event;
    EXPECT_TRUE(event.at("pid").is_number_integer());
    EXPECT_TRUE(event.at("tid").is_number_integer());
    if (event.at("ph") == "M") continue;
    EXPECT_GE(event.at("ts"), 1'700'000'000'000'000.0);
    if (event.at("cat") == "stage") {
      sum += event.at("dur").get<double>();
      end = std::max(end, event.at("ts").get<double>() + event.at("dur").get<double>());
    } else {
      ++cards;
      EXPECT_EQ(event.at("dur"), 800.0);
      EXPECT_EQ(event.at("args").at("bytes"), 1 << 20);
    }
  }
  EXPECT_NEAR(sum, 1000, 1e-6);
  EXPECT_NEAR(end - 1.7e15, 1000, 1);  // a double has room for a quarter of a microsecond there
  EXPECT_EQ(cards, 1);
}

TEST(Trace, OfATransferThatHasNotStartedIsEmptyAndFine) {
  const client::TransferTrace none;
  EXPECT_THAT(trace_text(none), HasSubstr("total"));
  EXPECT_TRUE(json::parse(trace_events(none)).is_object());
}

NodeSample sample(double written, std::chrono::steady_clock::time_point when) {
  NodeSample sample;
  sample.when = when;
  sample.status = {
      {"node", "a"},
      {"provider", "efa"},
      {"service_version", "0.1.0"},
      {"uptime_s", 7260},
      {"transfers", {{"running", 1}, {"queued", 2}, {"done", 5}, {"failed", 1}}},
      {"recent_errors",
       json::array({{{"unix_ms", 1000}, {"what", "transfer"}, {"words", "it \033[2J broke"}}})},
      {"devices", json::array({{{"name", "host0"},
                                {"cards", json::array({{{"name", "eth0"},
                                                        {"up", true},
                                                        {"link_gbps", 80},
                                                        {"written_bytes", written},
                                                        {"read_bytes", 0}},
                                                       {{"name", "eth1"},
                                                        {"up", false},
                                                        {"last_error", "no answer"},
                                                        {"link_gbps", 0}}})}}})}};
  sample.nodes =
      json::array({{{"name", "a"}, {"state", "self"}},
                   {{"name", "b"}, {"state", "dead"}, {"load", 3}, {"labels", {{"rack", "r7"}}}}});
  sample.transfers = json::array({{{"id", 9},
                                   {"state", "running"},
                                   {"node", "b"},
                                   {"region", "kv"},
                                   {"remote_region", "pool"},
                                   {"direction", "write"},
                                   {"lane", "bulk"},
                                   {"bytes", 25},
                                   {"total_bytes", 100},
                                   {"elapsed_us", 1000}}});
  return sample;
}

const std::chrono::steady_clock::time_point kNow{1h};

TEST(Top, ShowsRatesAgainstTheLink) {
  const auto frame = top_frame(sample(10e9, kNow + 2s), sample(0, kNow), {200, 0, false});
  EXPECT_THAT(frame, HasSubstr("5.00 GB/s"));
  EXPECT_THAT(frame, HasSubstr("[##########..........]  50 %"));
  EXPECT_THAT(frame, HasSubstr("up 2 h 1 min"));
  EXPECT_THAT(frame, HasSubstr("OUT"));
  EXPECT_THAT(frame, HasSubstr("no answer"));
  EXPECT_THAT(frame, HasSubstr("rack=r7"));
  EXPECT_THAT(frame, HasSubstr("25 %"));
}

TEST(Top, ShowsNoShareOfATransferThatExpired) {
  auto now = sample(1, kNow);
  now.transfers[0].erase("total_bytes");
  now.transfers[0]["state"] = "expired";
  const auto frame = top_frame(now, now, {200, 0, false});
  EXPECT_THAT(frame, AllOf(HasSubstr("expired"), Not(HasSubstr("100 %"))));
  now.transfers[0]["state"] = "done";
  EXPECT_THAT(top_frame(now, now, {200, 0, false}), HasSubstr("[####################] 100 %"));
}

TEST(Top, KnowsNoRatesFromOneLook) {
  const auto one = sample(10e9, kNow);
  EXPECT_THAT(top_frame(one, one, {200, 0, false}), HasSubstr("0.0 kB/s"));
}

TEST(Top, FitsTheScreenAndLetsNothingThroughThatMovesTheCursor) {
  const auto frame = top_frame(sample(1, kNow), sample(0, kNow), {60, 8, false});
  std::istringstream lines(frame);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 60u) << line;
  EXPECT_LE(count, 8);
  EXPECT_EQ(top_frame(sample(1, kNow), sample(0, kNow), {200, 0, false}).find('\033'),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::cli
