// Third-party transfers on real services: a client of one node has another node move bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/eventually.hpp"
#include "tests/integration/nodes.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;
using State = client::TransferResult::State;
using Remote = client::TransferResult::Remote;

constexpr std::uint64_t kPage = 64 << 10;
constexpr std::uint64_t kBytes = 16 << 20;
constexpr std::uint64_t kLongBytes = 256 << 20;

client::TransferSpec on(const std::string& node, client::TransferSpec spec) {
  spec.on = node;
  return spec;
}

std::string code_of(client::Client& client, const client::TransferSpec& spec) {
  try {
    client.transfer(spec);
  } catch (const client::Error& error) {
    return error.code();
  }
  return "nothing";
}

json line_of(client::Client& client, std::uint64_t transfer) {
  return json::parse(client.transfers({transfer}).at(0).json);
}

json transfers_of(client::Client& client) {
  return json::parse(client.call("status", "{}")).at("transfers");
}

void allocate(Nodes& nodes, const std::string& node, const std::string& name, std::uint64_t bytes) {
  nodes[node].allocate(name, bytes, "", client::MapMemory::kNo).detach();
}

/// A client of a asks b, which has "src", to move it to c, or wherever.
TEST(ThirdParty, TransfersMoveBytesBetweenNodesThatTheirAskerIsNotOneOf) {
  Nodes nodes({"a", "b", "c"});
  allocate(nodes, "a", "dst", kBytes);
  allocate(nodes, "b", "src", kBytes);
  allocate(nodes, "b", "copy", kBytes);
  allocate(nodes, "c", "dst", kBytes);
  const Shuffle shuffle(kBytes, kPage, 7);
  nodes["b"].fill("src", 1);

  std::vector<std::string> heard;
  std::mutex mutex;
  const auto subscription = nodes["c"].subscribe({"notify"}, [&](const client::Event& event) {
    const std::scoped_lock lock(mutex);
    heard.push_back(std::get<client::Notification>(event.body).from);
  });
  auto spec = on("b", shuffle.write("src", "c", "dst"));
  spec.verify = true;
  spec.notify = "it is there";
  spec.key = "once";
  const auto transfer = nodes["a"].transfer(spec);
  const auto result = transfer.wait();
  EXPECT_EQ(result.state, State::kDone) << result.error_message;
  EXPECT_EQ(result.remote, Remote::kQuiet);
  EXPECT_EQ(result.bytes, kBytes);
  EXPECT_EQ(result.node, "c");
  EXPECT_EQ(result.on, "b");
  EXPECT_NE(result.on_as, 0u);
  EXPECT_TRUE(shuffle.verify(nodes["b"], "src", nodes["c"], "dst"));
  // The same at its executor, under the executor's id.
  EXPECT_EQ(line_of(nodes["b"], result.on_as).at("state"), "done");
  EXPECT_EQ(line_of(nodes["a"], transfer.id()).at("on_as"), result.on_as);
  EXPECT_THAT(json::parse(nodes["a"].call("trace", json{{"transfer", transfer.id()}}.dump()))
                  .at("stages")
                  .dump(),
              HasSubstr("delegation"));
  EXPECT_TRUE(eventually([&] {
    const std::scoped_lock lock(mutex);
    return heard == std::vector<std::string>{"b"};
  }));
  EXPECT_EQ(nodes["a"].transfer(spec).id(), transfer.id()) << "its key is known";

  // To the asker's own node, into the executor's region, and a copy at the executor.
  EXPECT_EQ(nodes["a"].transfer(on("b", shuffle.write("src", "a", "dst"))).wait().state,
            State::kDone);
  EXPECT_TRUE(shuffle.verify(nodes["b"], "src", nodes["a"], "dst"));
  EXPECT_EQ(nodes["a"].transfer(on("b", shuffle.write("src", "", "copy"))).wait().path,
            "local_copy");
  nodes["a"].fill("dst", 9);
  EXPECT_EQ(nodes["a"].transfer(on("b", shuffle.read("copy", "a", "dst"))).wait().state,
            State::kDone);
  EXPECT_TRUE(shuffle.verify(nodes["a"], "dst", nodes["b"], "copy"));
  // On the service's own node it is a transfer as any other.
  EXPECT_EQ(nodes["a"].transfer(on("a", shuffle.write("dst", "b", "copy"))).wait().on, "");

  // What its executor refuses is told by the end; what is known here at once.
  const auto missing = nodes["a"].transfer(on("b", shuffle.write("none", "c", "dst"))).wait();
  EXPECT_EQ(missing.state, State::kFailed);
  EXPECT_EQ(missing.error_code, "NOT_FOUND");
  auto stale = on("b", shuffle.write("src", "c", "dst"));
  stale.targets[0].epoch = 12345;
  EXPECT_EQ(nodes["a"].transfer(stale).wait().error_code, "STALE_REGION");
  EXPECT_EQ(code_of(nodes["a"], on("x", shuffle.write("src", "c", "dst"))), "NOT_FOUND");
}

TEST(ThirdParty, TransfersOfLongListsAndManyAtOnceAllEndOnce) {
  Nodes nodes({"a", "b", "c"});
  constexpr std::uint64_t kSmall = 256;
  allocate(nodes, "b", "src", kBytes);
  allocate(nodes, "c", "dst", kBytes);
  nodes["b"].fill("src", 1);
  const Shuffle shuffle(kBytes, kSmall, 3);  // 65536 pages: half a megabyte of lists
  EXPECT_EQ(nodes["a"].transfer(on("b", shuffle.write("src", "c", "dst"))).wait().state,
            State::kDone);
  EXPECT_TRUE(shuffle.verify(nodes["b"], "src", nodes["c"], "dst"));
  const Shuffle few(kPage * 4, kPage, 3);
  std::vector<client::TransferSpec> many(500, on("b", few.write("src", "c", "dst")));
  for (const auto& result : client::wait_all(nodes["a"].transfer(many)))
    EXPECT_EQ(result.state, State::kDone) << result.error_message;
}

/// So many that the last ones wait for a long time.
std::vector<client::Transfer> a_long_queue(Nodes& nodes, const client::TransferSpec& spec) {
  auto transfers = nodes["a"].transfer(std::vector<client::TransferSpec>(100, spec));
  EXPECT_TRUE(eventually([&] { return transfers_of(nodes["b"]).at("accepted") >= 100; }));
  return transfers;
}

TEST(ThirdParty, TransfersAreCancelledAndExpireAtTheirExecutor) {
  Nodes nodes({"a", "b", "c"});
  allocate(nodes, "b", "src", kLongBytes);
  allocate(nodes, "c", "dst", kLongBytes);
  const Shuffle shuffle(kLongBytes, kPage, 7);
  auto spec = on("b", shuffle.write("src", "c", "dst"));
  const auto transfers = a_long_queue(nodes, spec);
  EXPECT_GT(transfers_of(nodes["b"]).at("for_others"), 20);
  EXPECT_GT(transfers_of(nodes["a"]).at("elsewhere"), 20);
  const auto last = [&] { return line_of(nodes["a"], transfers.back().id()); };
  EXPECT_EQ(last().at("on"), "b");
  // At the end of a long queue it may be on its way to its executor yet.
  ASSERT_TRUE(eventually([&] { return last().contains("on_as"); }));
  transfers.back().cancel();
  const auto cancelled = transfers.back().wait();
  EXPECT_EQ(cancelled.state, State::kCancelled);
  EXPECT_EQ(cancelled.remote, Remote::kQuiet);
  EXPECT_EQ(line_of(nodes["b"], cancelled.on_as).at("state"), "cancelled");

  spec.deadline_ms = 100;
  const auto expired = nodes["a"].transfer(spec).wait();
  EXPECT_EQ(expired.state, State::kExpired);
  EXPECT_EQ(expired.error_code, "DEADLINE_EXCEEDED");
  // By itself, or because the asker said so, 250 ms later: whoever looks at the clock first.
  const std::string ended_by = line_of(nodes["b"], expired.on_as).at("error").at("code");
  EXPECT_TRUE(ended_by == "DEADLINE_EXCEEDED" || ended_by == "CANCELLED") << ended_by;
  for (const auto& transfer : transfers) transfer.cancel();  // a drain would wait for them
}

TEST(ThirdParty, TransfersWhoseExecutorDiesFailAsThatAndANewOneWorks) {
  Nodes nodes({"a", "b", "c"});
  allocate(nodes, "b", "src", kLongBytes);
  allocate(nodes, "c", "dst", kLongBytes);
  const Shuffle shuffle(kLongBytes, kPage, 7);
  const auto transfers = a_long_queue(nodes, on("b", shuffle.write("src", "c", "dst")));
  const auto before = nodes.incarnation("b");
  nodes.kill("b");
  std::size_t died = 0;
  for (const auto& result : client::wait_all(transfers)) {
    if (result.state == State::kDone) continue;
    ++died;
    EXPECT_EQ(result.state, State::kFailed);
    EXPECT_EQ(result.error_code, "EXECUTOR_DIED") << result.error_message;
    EXPECT_EQ(result.remote, Remote::kUnreachable);
  }
  EXPECT_GT(died, 20u);
  nodes.start("b");
  nodes.await_connected("a", "b", before);
  nodes.await_connected("b", "c");
  allocate(nodes, "b", "src", kBytes);
  const Shuffle smaller(kBytes, kPage, 7);
  EXPECT_EQ(nodes["a"].transfer(on("b", smaller.write("src", "c", "dst"))).wait().state,
            State::kDone);
}

TEST(ThirdParty, TransfersIntoTheirAskersOwnPagesHaveLetGoOfThemWhenTheirExecutorDied) {
  Nodes nodes({"a", "b"});
  allocate(nodes, "b", "src", kLongBytes);
  allocate(nodes, "a", "dst", kLongBytes);
  const Shuffle shuffle(kLongBytes, kPage, 7);
  nodes["b"].fill("src", 1);
  const auto transfers = a_long_queue(nodes, on("b", shuffle.write("src", "a", "dst")));
  nodes.kill("b");
  // Also while its event waits for the pages it can be asked for.
  const auto last = transfers.back().id();
  EXPECT_TRUE(eventually([&] {
    try {
      nodes["a"].call("trace", json{{"transfer", last}}.dump());
    } catch (const client::Error& error) {
      EXPECT_EQ(error.code(), "NOT_FOUND");
    }
    return line_of(nodes["a"], last).at("state") == "failed";
  }));
  for (const auto& result : client::wait_all(transfers)) {
    if (result.state == State::kDone) continue;
    EXPECT_EQ(result.error_code, "EXECUTOR_DIED") << result.error_message;
    EXPECT_EQ(result.remote, Remote::kUnreachable) << "it may only be silent";
  }
  nodes["a"].fill("dst", 2);
  const auto before = nodes["a"].digest("dst", kPage);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(before, nodes["a"].digest("dst", kPage));
}

TEST(ThirdParty, TransfersOfAnAskerThatDiesAreCancelled) {
  Nodes nodes({"a", "b", "c"});
  allocate(nodes, "b", "src", kLongBytes);
  allocate(nodes, "c", "dst", kLongBytes);
  const Shuffle shuffle(kLongBytes, kPage, 7);
  a_long_queue(nodes, on("b", shuffle.write("src", "c", "dst")));
  nodes.kill("a");
  EXPECT_TRUE(eventually([&] {
    const json transfers = transfers_of(nodes["b"]);
    return transfers.at("cancelled") > 20 && transfers.at("for_others") == 0;
  }));
}

TEST(ThirdParty, TransfersAreFinishedAndToldByAnExecutorThatDrains) {
  Nodes nodes({"a", "b", "c"});
  allocate(nodes, "b", "src", kLongBytes);
  allocate(nodes, "c", "dst", kLongBytes);
  const Shuffle shuffle(kLongBytes, kPage, 7);
  const auto spec = on("b", shuffle.write("src", "c", "dst"));
  const auto last = nodes["a"].transfer(spec);
  EXPECT_TRUE(eventually([&] { return transfers_of(nodes["b"]).at("accepted") == 1; }));
  nodes["b"].call("drain", "{}");
  const auto result = last.wait();
  EXPECT_EQ(result.state, State::kDone) << result.error_message;
  EXPECT_TRUE(nodes.process("b").wait(10s));
  EXPECT_EQ(nodes.process("b").how_it_ended(), "exited with 0");
}

TEST(ThirdParty, TransfersAreRefusedByANodeThatCarriesOutNothingForOthersAndBothSidesSaySo) {
  Nodes nodes({"a", "b"});
  nodes.kill("b");
  nodes.start("b", {"security.third_party=none"});
  nodes.await_connected("a", "b");
  allocate(nodes, "a", "dst", kBytes);
  allocate(nodes, "b", "src", kBytes);
  const Shuffle shuffle(kBytes, kPage, 7);
  const auto refused = nodes["a"].transfer(on("b", shuffle.write("src", "a", "dst"))).wait();
  EXPECT_EQ(refused.state, State::kFailed);
  EXPECT_EQ(refused.error_code, "DENIED");
  for (const char* node : {"a", "b"}) {
    std::ifstream log(nodes.folder() / (std::string(node) + ".log"));
    const std::string text{std::istreambuf_iterator<char>(log), {}};
    EXPECT_THAT(text, HasSubstr("audit: refused")) << node;
    EXPECT_THAT(text, HasSubstr("security.third_party")) << node;
  }
}

}  // namespace
}  // namespace penstock::integration
