// What those who watch a node see: its metrics against what was moved, and where a transfer's time
// went.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>

#include "tests/integration/nodes.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using client::TransferTrace;
using nlohmann::json;

constexpr std::uint64_t kRegion = 8 << 20;
constexpr std::uint64_t kPage = 64 << 10;

/// The whole answer, "" when there was none.
std::string get(const std::string& endpoint, const std::string& path) {
  const auto port = endpoint.substr(endpoint.rfind(':') + 1);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string request = "GET " + path + " HTTP/1.0\r\nHost: localhost\r\n\r\n";
  std::string answer;
  if (::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
      ::send(socket, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    char buffer[65536];
    for (ssize_t got; (got = ::recv(socket, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(socket);
  return answer;
}

std::string fetch(const std::string& endpoint, const std::string& path) {
  const std::string answer = get(endpoint, path);
  const auto end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

class Metrics {
 public:
  explicit Metrics(client::Client& client)
      : text_(fetch(json::parse(client.status()).at("metrics"), "/metrics")) {}

  /// Of all series of this name whose labels have `part`.
  double sum(const std::string& name, const std::string& part = "") const {
    double sum = 0;
    std::istringstream lines(text_);
    for (std::string line; std::getline(lines, line);) {
      const auto end = line.find_first_of("{ ");
      if (line.substr(0, end) == name && line.find(part) != std::string::npos)
        sum += std::stod(line.substr(line.rfind(' ')));
    }
    return sum;
  }

 private:
  std::string text_;
};

struct TwoNodes : Nodes {
  // Without writes to warm up: what is counted is what the test moves.
  TwoNodes() : Nodes({"a", "b"}, {"fabric.warm_up=false", "metrics.endpoint=http://127.0.0.1:0"}) {
    (*this)["a"].allocate("src", kRegion).detach();
    (*this)["b"].allocate("dst", kRegion).detach();
  }
};

TEST(Watch, MetricsTellWhatWasMoved) {
  TwoNodes nodes;
  const Metrics before(nodes["a"]);
  const Shuffle shuffle(kRegion, kPage, 1);
  ASSERT_TRUE(nodes["a"].transfer(shuffle.write("src", "b", "dst")).wait().done());
  ASSERT_TRUE(nodes["a"].transfer(shuffle.read("src", "b", "dst")).wait().done());
  const Metrics after(nodes["a"]);
  const auto grew = [&](const std::string& name, const std::string& part = "") {
    return after.sum(name, part) - before.sum(name, part);
  };
  EXPECT_EQ(grew("penstock_card_written_bytes_total"), kRegion);
  EXPECT_EQ(grew("penstock_card_read_bytes_total"), kRegion);
  EXPECT_EQ(grew("penstock_transfer_bytes_total", "direction=\"write\""), kRegion);
  EXPECT_EQ(grew("penstock_transfers_accepted_total"), 2);
  EXPECT_EQ(grew("penstock_transfers_total", "state=\"done\",priority=\"bulk\""), 2);
  EXPECT_EQ(grew("penstock_transfers_total", "state=\"failed\""), 0);
  EXPECT_EQ(grew("penstock_transfer_stage_seconds_count", "stage=\"wire\""), 2);
  EXPECT_EQ(grew("penstock_transfer_seconds_count", "priority=\"bulk\""), 2);
  EXPECT_NEAR(grew("penstock_transfer_stage_seconds_sum"), grew("penstock_transfer_seconds_sum"),
              1e-6);
  EXPECT_EQ(after.sum("penstock_region_bytes"), kRegion);
  EXPECT_EQ(after.sum("penstock_members", "state=\"connected\""), 1);
  EXPECT_EQ(after.sum("penstock_card_posted_bytes"), 0);
  EXPECT_GT(grew("penstock_poller_busy_seconds_total"), 0);
  const double spent = after.sum("penstock_poller_busy_seconds_total") +
                       after.sum("penstock_poller_asleep_seconds_total");
  EXPECT_LE(spent, after.sum("penstock_poller_alive_seconds_total") + 0.001);
}

TEST(Watch, MetricsCountWhatFailed) {
  TwoNodes nodes;
  const Shuffle shuffle(kRegion, kPage, 1);
  auto spec = shuffle.write("src", "b", "nowhere");
  EXPECT_FALSE(nodes["a"].transfer(spec).wait().done());
  EXPECT_EQ(Metrics(nodes["a"]).sum("penstock_transfers_total", "state=\"failed\""), 1);
  const auto errors = json::parse(nodes["a"].status()).at("recent_errors");
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_NE(errors[0].at("words").get<std::string>().find("nowhere"), std::string::npos);
}

TEST(Watch, CanBeTurnedOff) {
  Nodes nodes({"a"}, {"metrics.endpoint=off"});
  EXPECT_EQ(json::parse(nodes["a"].status()).at("metrics"), "");
}

TEST(Watch, APasswordKeepsTheMetrics) {
  app::TemporaryFolder folder;
  std::ofstream(folder.path() / "password") << "open sesame\n";
  Nodes nodes({"a"}, {"metrics.endpoint=http://127.0.0.1:0",
                      "metrics.password_file=" + (folder.path() / "password").string()});
  const std::string endpoint = json::parse(nodes["a"].status()).at("metrics");
  const std::string answer = get(endpoint, "/metrics");
  EXPECT_EQ(answer.find(" 401 "), std::string("HTTP/1.1").size()) << answer;
  EXPECT_EQ(answer.find("penstock_"), std::string::npos);
}

TEST(Watch, TwoServicesOfOneMachineNeedNoConfiguration) {
  Nodes nodes({"a", "b"});
  EXPECT_NE(json::parse(nodes["a"].status()).at("metrics"),
            json::parse(nodes["b"].status()).at("metrics"));
  EXPECT_GT(Metrics(nodes["a"]).sum("penstock_info"), 0);
  EXPECT_GT(Metrics(nodes["a"]).sum("penstock_connections"), 0);
  EXPECT_NE(fetch(json::parse(nodes["a"].status()).at("metrics"), "/metrics")
                .find("penstock_requests_refused_total"),
            std::string::npos);
  EXPECT_GT(Metrics(nodes["b"]).sum("penstock_info"), 0);
}

// -- traces --------------------------------------------------------------------------------------

std::uint64_t sum_of(const TransferTrace& trace) {
  return std::accumulate(trace.stages.begin(), trace.stages.end(), std::uint64_t{0},
                         [](auto sum, const auto& stage) { return sum + stage.took_ns; });
}
std::vector<std::string> names_of(const TransferTrace& trace) {
  std::vector<std::string> names;
  for (const auto& stage : trace.stages) names.push_back(stage.name);
  return names;
}

TEST(Watch, ATraceTellsWhereTheTimeWent) {
  TwoNodes nodes;
  const Shuffle shuffle(kRegion, kPage, 1);
  auto spec = shuffle.write("src", "b", "dst");
  spec.packing = client::Packing::kNever;
  const auto result = nodes["a"].transfer(spec).wait();
  ASSERT_TRUE(result.done());
  const auto trace = nodes["a"].trace(result.id);
  EXPECT_THAT(names_of(trace), testing::ElementsAre("admission", "queue", "metadata", "posting",
                                                    "wire", "completion", "notification"));
  EXPECT_EQ(sum_of(trace), trace.total_ns);
  // The service's own measure starts after the admission and ends before the notification.
  EXPECT_GE(trace.total_ns / 1000 + 1, result.elapsed_us);
  EXPECT_EQ(trace.id, result.id);
  EXPECT_EQ(trace.bytes, kRegion);
  ASSERT_EQ(trace.cards.size(), 1u);
  EXPECT_EQ(trace.cards[0].bytes, kRegion);
  const auto& wire = trace.stages[4];
  EXPECT_GT(trace.cards[0].last_ns, wire.at_ns);
  EXPECT_LE(trace.cards[0].last_ns, wire.at_ns + wire.took_ns);
}

TEST(Watch, ATraceOfAShortWriteHasItInItsMetadata) {
  TwoNodes nodes;
  client::TransferSpec spec;
  spec.region = "src";
  spec.targets = {{"b", "dst"}};
  spec.layout = client::Ranges{{{0, 0, 4096}}};
  const auto result = nodes["a"].transfer(spec).wait();
  const auto trace = nodes["a"].trace(result.id);
  EXPECT_THAT(names_of(trace),
              testing::ElementsAre("admission", "queue", "metadata", "notification"));
  EXPECT_EQ(sum_of(trace), trace.total_ns);
}

TEST(Watch, ATraceShowsWhereATransferHangs) {
  TwoNodes nodes;
  nodes.signal("b", SIGSTOP);
  const Shuffle shuffle(kRegion, kPage, 1);
  auto spec = shuffle.write("src", "b", "dst");
  auto transfer = nodes["a"].transfer(spec);
  const auto trace = nodes["a"].trace(transfer.id());
  nodes.signal("b", SIGCONT);
  EXPECT_THAT(trace.state, testing::AnyOf("queued", "opening"));
  EXPECT_THAT(trace.stages.back().name, testing::AnyOf("queue", "metadata"));
  EXPECT_EQ(sum_of(trace), trace.total_ns);
  transfer.cancel();
  EXPECT_TRUE(transfer.wait_for(20s));
}

TEST(Watch, OnlyTheLastTracesAreKept) {
  Nodes nodes({"a"}, {"metrics.traces_kept=2"});
  nodes["a"].allocate("x", kPage).detach();
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 3; ++i) {
    client::TransferSpec spec;
    spec.region = "x";
    spec.targets = {{"", "x"}};
    spec.layout = client::Ranges{{{0, kPage / 2, kPage / 2}}};
    ids.push_back(nodes["a"].transfer(spec).wait().id);
  }
  EXPECT_THAT(names_of(nodes["a"].trace(ids[2])),
              testing::ElementsAre("admission", "queue", "copy", "notification"));
  EXPECT_NO_THROW(nodes["a"].trace(ids[1]));
  try {
    nodes["a"].trace(ids[0]);
    FAIL() << "it was to be forgotten";
  } catch (const client::Error& error) {
    EXPECT_EQ(error.code(), "NOT_FOUND");
  }
}

}  // namespace
}  // namespace penstock::integration
