// Nodes that come and go: drains, restarts, deaths, and what others and clients notice of it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/eventually.hpp"
#include "tests/integration/nodes.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using State = client::TransferResult::State;
using nlohmann::json;

constexpr std::uint64_t kBytes = 64 << 20;
constexpr std::uint64_t kPage = 64 << 10;

std::string state_of(client::Client& client, const std::string& name) {
  for (const auto& node : client.nodes())
    if (node.name == name) return node.state;
  return "";
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const client::Error& error) {
    return error.code();
  }
  return "accepted";
}

/// Member events in the order in which they came, as "joined b".
class MemberEvents {
 public:
  explicit MemberEvents(client::Client& client)
      : subscription_(client.subscribe({"members"}, [this](const client::Event& event) {
          std::lock_guard lock(mutex_);
          seen_.push_back(event.name.substr(7) + " " + json::parse(event.json).value("node", ""));
        })) {}
  bool saw(const std::string& what) {
    return eventually([&] {
      std::lock_guard lock(mutex_);
      return std::ranges::find(seen_, what) != seen_.end();
    });
  }
  std::vector<std::string> all() {
    std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> seen_;
  client::Subscription subscription_;
};

TEST(Members, ADrainLetsEverythingInFlightEndAndExitsWithZero) {
  Nodes nodes({"a", "b", "c"});
  for (const char* name : {"a", "b", "c"}) {
    nodes[name].allocate("out", kBytes, "", client::MapMemory::kNo).detach();
    nodes[name].allocate("in", kBytes, "", client::MapMemory::kNo).detach();
    nodes[name].fill("out", 1);
  }
  MemberEvents at_a(nodes["a"]);
  const Shuffle shuffle(kBytes, kPage, 1);
  std::vector<client::TransferSpec> to_b, from_b;
  for (int i = 0; i < 20; ++i) {
    to_b.push_back(shuffle.write("out", "b", "in"));
    from_b.push_back(shuffle.write("out", "a", "in"));
  }
  auto transfers = nodes["a"].transfer(to_b);
  for (auto& transfer : nodes["b"].transfer(from_b)) transfers.push_back(transfer);
  nodes.signal("b", SIGTERM);
  ASSERT_TRUE(at_a.saw("draining b"));
  EXPECT_EQ(state_of(nodes["a"], "b"), "draining");
  EXPECT_EQ(refusal([&] { nodes["a"].transfer(shuffle.write("out", "b", "in")); }), "DRAINING");
  for (auto& transfer : transfers) {
    const auto result = transfer.wait();
    EXPECT_EQ(result.state, State::kDone) << result.error_code << ": " << result.error_message;
  }
  EXPECT_TRUE(nodes.process("b").wait(20s));
  EXPECT_EQ(nodes.process("b").how_it_ended(), "exited with 0");
  EXPECT_TRUE(at_a.saw("left b"));
  // The others never noticed.
  EXPECT_EQ(nodes["a"].transfer(shuffle.write("out", "c", "in")).wait().state, State::kDone);
}

TEST(Members, AnyNodeMayBeAskedToDrainAnother) {
  Nodes nodes({"a", "b"});
  EXPECT_EQ(refusal([&] { nodes["a"].call("drain", R"({"node": "z"})"); }), "NOT_FOUND");
  nodes["a"].call("drain", R"({"node": "b", "deadline_ms": 5000})");
  EXPECT_TRUE(nodes.process("b").wait(20s));
  EXPECT_EQ(nodes.process("b").how_it_ended(), "exited with 0");
  EXPECT_TRUE(eventually([&] { return state_of(nodes["a"], "b") == "left"; }));
  EXPECT_EQ(refusal([&] { nodes["a"].call("drain", R"({"node": "b"})"); }), "PEER_LEFT");
}

TEST(Members, ASigtermAfterARequestToDrainIsNotTheSecondSignal) {
  Nodes nodes({"a", "b"});
  nodes["a"].allocate("out", kBytes, "", client::MapMemory::kNo).detach();
  nodes["b"].allocate("in", kBytes, "", client::MapMemory::kNo).detach();
  nodes.signal("b", SIGSTOP);  // so that a's transfer does not end by itself
  auto transfer = nodes["a"].transfer(Shuffle(kBytes, kPage, 1).write("out", "b", "in"));
  nodes["a"].call("drain", R"({"deadline_ms": 60000})");
  std::this_thread::sleep_for(300ms);
  nodes.signal("a", SIGTERM);
  std::this_thread::sleep_for(300ms);
  EXPECT_TRUE(nodes.process("a").running());
  nodes.signal("a", SIGTERM);
  EXPECT_TRUE(nodes.process("a").wait(5s));
  nodes.signal("b", SIGCONT);
}

TEST(Members, ADrainThatCannotEndByItselfIsOverSoonAfterItsDeadline) {
  Nodes nodes({"a", "b"});
  nodes["a"].allocate("out", kBytes, "", client::MapMemory::kNo).detach();
  nodes["b"].allocate("in", kBytes, "", client::MapMemory::kNo).detach();
  nodes.signal("b", SIGSTOP);
  auto transfer = nodes["a"].transfer(Shuffle(kBytes, kPage, 1).write("out", "b", "in"));
  const auto begin = std::chrono::steady_clock::now();
  nodes["a"].call("drain", R"({"deadline_ms": 1000})");
  EXPECT_TRUE(nodes.process("a").wait(20s));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s + 5s + 1s);
  nodes.signal("b", SIGCONT);
}

TEST(Members, TransfersEndWithWhatBecameOfTheirNode) {
  Nodes nodes({"a", "b", "c"});
  nodes["a"].allocate("out", kBytes, "", client::MapMemory::kNo).detach();
  for (const char* name : {"b", "c"})
    nodes[name].allocate("in", kBytes, "", client::MapMemory::kNo).detach();
  MemberEvents at_a(nodes["a"]);
  const Shuffle shuffle(kBytes, kPage, 1);
  nodes.signal("b", SIGSTOP);
  nodes.signal("c", SIGSTOP);
  auto to_dead = nodes["a"].transfer(shuffle.write("out", "b", "in"));
  auto to_other = nodes["a"].transfer(shuffle.write("out", "c", "in"));
  nodes.kill("b");
  const auto dead = to_dead.wait();
  EXPECT_EQ(dead.state, State::kFailed);
  EXPECT_EQ(dead.error_code, "PEER_DEAD") << dead.error_message;
  EXPECT_TRUE(at_a.saw("dead b"));
  nodes.signal("c", SIGCONT);
  EXPECT_EQ(to_other.wait().state, State::kDone);
}

TEST(Members, ADeadMemberIsRemovedForGood) {
  Nodes nodes({"a", "b"});
  EXPECT_EQ(refusal([&] { nodes["a"].call("remove", R"({"node": "b"})"); }), "BUSY");
  EXPECT_EQ(refusal([&] { nodes["a"].call("remove", R"({"node": "z", "force": true})"); }),
            "NOT_FOUND");
  nodes.kill("b");
  EXPECT_TRUE(eventually([&] { return state_of(nodes["a"], "b") == "dead"; }));
  nodes["a"].call("remove", R"({"node": "b"})");
  EXPECT_TRUE(eventually([&] { return state_of(nodes["a"], "b") == "left"; }));
}

std::size_t open_files(pid_t pid) {
  const std::filesystem::directory_iterator files(fmt::format("/proc/{}/fd", pid));
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

long resident_kib(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  return 0;
}

TEST(Members, ANodeThatRestartsFiftyTimesAtOneAddressAlwaysComesBackAndCostsNothing) {
  Nodes nodes({"a", "b"});
  nodes["a"].allocate("out", 1 << 20, "", client::MapMemory::kNo).detach();
  const Shuffle shuffle(1 << 20, kPage, 1);
  const pid_t a = nodes.process("a").pid();
  std::size_t files = 0;
  long memory = 0;
  for (int round = 0; round < 50; ++round) {
    const auto old = nodes.incarnation("b");
    if (round % 2 == 0) {
      nodes.kill("b");
    } else {
      nodes.signal("b", SIGTERM);
      ASSERT_TRUE(nodes.process("b").wait(20s));
    }
    nodes.start("b");
    nodes["b"].allocate("in", 1 << 20, "", client::MapMemory::kNo).detach();
    nodes.await_connected("a", "b", old);
    const auto result = nodes["a"].transfer(shuffle.write("out", "b", "in")).wait();
    EXPECT_EQ(result.state, State::kDone) << round << ": " << result.error_message;
    if (round == 9) {  // allocators and caches have what they need by now
      files = open_files(a);
      memory = resident_kib(a);
    }
  }
  EXPECT_TRUE(eventually([&] { return open_files(a) <= files + 2; }))
      << files << " open files after ten rounds, " << open_files(a) << " after fifty";
  if (!kSanitized) {
    EXPECT_LE(resident_kib(a), memory + 4096);
  }
}

TEST(Members, AfterARestartOfTheServiceAClientHasItsRegionsAndSubscriptionsAgain) {
  Nodes nodes({"a", "b"});
  nodes["b"].allocate("in", 1 << 20, "", client::MapMemory::kNo).detach();
  std::promise<client::Restart> restarted;
  client::Client client(
      {.endpoint = nodes.endpoint("a"),
       .timeout_ms = 20000,
       .restarted = [&](const client::Restart& restart) { restarted.set_value(restart); }});
  auto region = client.allocate("out", 1 << 20);
  auto* const memory = region.data().data();
  const auto epoch = region.epoch();
  memory[0] = std::byte{7};
  auto other = client.allocate("gone", 4096);
  other.release();
  MemberEvents events(client);
  nodes.signal("a", SIGTERM);
  ASSERT_TRUE(nodes.process("a").wait(20s));
  nodes.restart_process("a");

  auto future = restarted.get_future();
  ASSERT_EQ(future.wait_for(30s), std::future_status::ready);
  const auto restart = future.get();
  EXPECT_EQ(restart.regions, std::vector<std::string>{"out"});
  EXPECT_TRUE(restart.lost.empty());
  EXPECT_EQ(region.data().data(), memory);  // the same place,
  EXPECT_EQ(memory[0], std::byte{0});       // other memory
  EXPECT_NE(region.epoch(), epoch);
  EXPECT_TRUE(events.saw("joined b"));

  // It is the service's memory too: what is written there arrives.
  std::ranges::fill(region.data(), std::byte{0x77});
  EXPECT_TRUE(eventually([&] { return state_of(client, "b") == "connected"; }));
  const Shuffle shuffle(1 << 20, kPage, 3);
  EXPECT_EQ(client.transfer(shuffle.write("out", "b", "in")).wait().state, State::kDone);
  EXPECT_TRUE(shuffle.verify(client, "out", nodes["b"], "in"));
  std::vector<std::byte> same(kPage, std::byte{0x77});
  EXPECT_NE(client.digest("out", kPage).front(), 0u);
  EXPECT_TRUE(std::ranges::equal(region.data().first(kPage), same));
}

/// What a command of the command line says, and its exit code.
struct Command {
  Command(Nodes& nodes, const std::string& node, const std::string& words) {
    FILE* pipe = ::popen(fmt::format("{}/penstock --endpoint {} {} 2>&1", PENSTOCK_BIN_DIR,
                                     nodes.endpoint(node), words)
                             .c_str(),
                         "r");
    std::array<char, 4096> buffer;
    while (const auto got = std::fread(buffer.data(), 1, buffer.size(), pipe))
      said.append(buffer.data(), got);
    const int status = ::pclose(pipe);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  bool says(const std::string& what) const { return said.find(what) != std::string::npos; }
  std::string said;
  int code = -1;
};

TEST(Members, AnOperatorSeesProbesDrainsAndRemovesThem) {
  Nodes nodes({"a", "b", "c"});
  const Command probe(nodes, "a", "probe --ready");
  EXPECT_EQ(probe.code, 0) << probe.said;
  EXPECT_TRUE(probe.says("2 of 2 nodes answer over the fabric")) << probe.said;
  const Command unknown(nodes, "a", "drain z");
  EXPECT_EQ(unknown.code, 1) << unknown.said;

  auto watching = std::async(std::launch::async, [&] {
    return Command(nodes, "a", "--json nodes --watch & sleep 8; kill $!").said;
  });
  const Command drain(nodes, "a", "drain b --deadline 10s");
  EXPECT_EQ(drain.code, 0) << drain.said;
  EXPECT_TRUE(drain.says("b has left after")) << drain.said;
  EXPECT_TRUE(nodes.process("b").wait(5s));
  EXPECT_EQ(nodes.process("b").how_it_ended(), "exited with 0");

  nodes.kill("c");
  EXPECT_TRUE(eventually([&] { return state_of(nodes["a"], "c") == "dead"; }));
  EXPECT_EQ(Command(nodes, "a", "remove c").code, 0);
  const Command list(nodes, "a", "nodes");
  EXPECT_TRUE(list.says("left")) << list.said;
  EXPECT_FALSE(list.says("dead")) << list.said;
  const auto watched = watching.get();
  EXPECT_NE(watched.find(R"("node":"b","state":"left")"), std::string::npos) << watched;

  const Command alone(nodes, "a", "drain");
  EXPECT_EQ(alone.code, 0) << alone.said;
  EXPECT_TRUE(nodes.process("a").wait(5s));
  EXPECT_EQ(nodes.process("a").how_it_ended(), "exited with 0");
}

TEST(Members, NodesOneVersionApartWorkTogether) {
  Nodes nodes({"a", "b"});
  nodes.kill("b");
  const int older = json::parse(nodes["a"].nodes().at(0).json).at("wire_version").get<int>() - 1;
  nodes.start("b", {"fabric.wire_version=" + std::to_string(older)});
  nodes["a"].allocate("out", kBytes, "", client::MapMemory::kNo).detach();
  nodes["b"].allocate("in", kBytes, "", client::MapMemory::kNo).detach();
  nodes["a"].fill("out", 1);
  EXPECT_TRUE(eventually([&] {
    const auto known = nodes["a"].nodes();
    return std::ranges::any_of(known, [&](const auto& node) {
      return node.name == "b" && node.state == "connected" &&
             json::parse(node.json).at("wire_version") == older;
    });
  }));
  const Shuffle shuffle(kBytes, kPage, 1);
  EXPECT_EQ(nodes["a"].transfer(shuffle.write("out", "b", "in")).wait().state, State::kDone);
  EXPECT_TRUE(shuffle.verify(nodes["a"], "out", nodes["b"], "in"));
  nodes.await_connected("b", "a");
  nodes["b"].fill("in", 2);
  EXPECT_EQ(nodes["b"].transfer(shuffle.write("in", "a", "out")).wait().state, State::kDone);
  // Nobody could tell how old data is that comes with a question.
  const Shuffle small(kPage, kPage, 2);
  for (const auto& [from, source, to, destination] :
       {std::tuple("a", "out", "b", "in"), std::tuple("b", "in", "a", "out")}) {
    const auto ended = nodes[from].transfer(small.write(source, to, destination)).wait();
    EXPECT_EQ(ended.state, State::kDone) << ended.error_message;
    EXPECT_EQ(ended.path, "direct");
  }
}

}  // namespace
}  // namespace penstock::integration
