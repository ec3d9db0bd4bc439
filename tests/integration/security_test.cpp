// Who gets in, on real services: clients by their keys, members by the cluster's, and strangers
// nowhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/eventually.hpp"
#include "tests/integration/nodes.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using testing::AnyOf;
using testing::HasSubstr;
using State = client::TransferResult::State;
constexpr std::uint64_t kPage = 64 << 10;
constexpr std::uint64_t kBytes = 4 << 20;

/// The code of the error that `call` throws.
template <class Call>
std::string code_of(Call&& call) {
  try {
    call();
  } catch (const client::Error& error) {
    return error.code();
  }
  return "nothing";
}

class Security : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string keygen(const std::string& name) {
    app::ChildProcess process({std::string(PENSTOCK_BIN_DIR) + "/penstock", "keygen", path(name)},
                              path("keygen.log"));
    process.wait(10s);
    std::ifstream file(path(name + ".pub"));
    std::string key;
    std::getline(file, key);
    EXPECT_EQ(key.size(), 40u);
    return key;
  }
  void allow(const std::string& text) const { std::ofstream(path("clients")) << text; }
  std::string log_of(Nodes& nodes, const std::string& name) const {
    std::ifstream file(nodes.folder() / (name + ".log"));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  app::TemporaryFolder folder_;
};

TEST_F(Security, OfClientsIsByKeyAndRoleAndTheListIsReadAgainAtSighup) {
  const auto service = keygen("service");
  const auto reader = keygen("reader"), worker = keygen("worker"), other = keygen("other"),
             admin = keygen("admin");
  allow("read watcher " + reader + "\ntransfer worker " + worker + "\ntransfer other " + other +
        "\nadmin boss " + admin + "\n");
  // One endpoint with keys; the one of the fixture's own client is a file.
  const std::string bind = "request.bind=[tcp://127.0.0.1:*, ipc://" + path("a.ipc") + "]";
  app::ChildProcess node(
      {std::string(PENSTOCK_BIN_DIR) + "/penstockd", "--set", "node.name=a", "--set", bind, "--set",
       "gossip.bind=tcp://127.0.0.1:*", "--set", "fabric.cards=[{domain: lo}]", "--set",
       "devices.pin=false", "--set", "devices.gpus=none", "--set",
       "security.key_file=" + path("service"), "--set", "security.allow_list=" + path("clients")},
      path("a.log"));
  std::string endpoint;  // as the start-up lines say it
  ASSERT_TRUE(eventually([&] {
    std::ifstream log(path("a.log"));
    const std::string text{std::istreambuf_iterator<char>(log), {}};
    const auto at = text.find("tcp://", text.find("requests "));
    const auto end = text.find("gossip", at);
    if (at == std::string::npos || end == std::string::npos) return false;
    endpoint = text.substr(at, text.find('\n', at) - at);
    return true;
  }));
  const auto as = [&](const std::string& key, std::uint32_t timeout_ms = 10000) {
    return client::Client({.endpoint = endpoint,
                           .timeout_ms = timeout_ms,
                           .key_file = path(key),
                           .server_key = service});
  };
  {
    auto watcher = as("reader");
    EXPECT_EQ(watcher.service().node, "a");
    EXPECT_EQ(code_of([&] { watcher.allocate("kv", kBytes, "", client::MapMemory::kNo); }),
              "DENIED");
    auto worker_client = as("worker");
    auto region = worker_client.allocate("kv", kBytes, "", client::MapMemory::kNo);
    EXPECT_EQ(code_of([&] { worker_client.call("drain", "{}"); }), "DENIED");
    // Another's region: not to be released, filled, read by its digests, or moved.
    auto stranger = as("other");
    EXPECT_EQ(code_of([&] { stranger.release("kv", true); }), "DENIED");
    EXPECT_EQ(code_of([&] { stranger.fill("kv", 1); }), "DENIED");
    EXPECT_EQ(code_of([&] { stranger.digest("kv", kPage); }), "DENIED");
    auto boss = as("admin");
    boss.fill("kv", 1);
    // No key, a key that is not on the list, a server key that is not this service's.
    const client::Options without{.endpoint = endpoint, .timeout_ms = 15000};
    // DENIED where the client learns why before the service hangs up, which is a race of the two.
    EXPECT_THAT(code_of([&] { client::Client c(without); }), AnyOf("DENIED", "DEADLINE_EXCEEDED"));
    keygen("stranger");
    EXPECT_EQ(code_of([&] { as("stranger"); }), "DENIED");
    client::Options wrong = without;
    wrong.key_file = path("worker");
    wrong.server_key = worker;
    wrong.timeout_ms = 500;
    EXPECT_EQ(code_of([&] { client::Client c(wrong); }), "DEADLINE_EXCEEDED");
    region.detach();  // while its client is still let in
    // Reload: one gains a role, one loses everything; a broken list changes nothing.
    allow("transfer watcher " + reader + "\nadmin boss " + admin + "\n");
    ::kill(node.pid(), SIGHUP);
    EXPECT_TRUE(eventually([&] {
      return code_of([&] { watcher.call("release", R"({"name":"nothing"})"); }) == "NOT_FOUND";
    }));
    EXPECT_EQ(code_of([&] { as("worker", 15000); }), "DENIED");
    allow("nonsense\n");
    ::kill(node.pid(), SIGHUP);
    EXPECT_TRUE(eventually([&] {
      std::ifstream log(path("a.log"));
      const std::string text{std::istreambuf_iterator<char>(log), {}};
      return text.find("'nonsense' is no role") != std::string::npos;
    }));
    EXPECT_EQ(code_of([&] { watcher.status(); }), "nothing");
  }
  node.stop(5s);
  std::ifstream log(path("a.log"));
  const std::string text{std::istreambuf_iterator<char>(log), {}};
  EXPECT_THAT(text, HasSubstr("audit: refused watcher: 'allocate' needs the role transfer"));
  EXPECT_THAT(text, HasSubstr("is not on the allow-list"));
  EXPECT_THAT(text, HasSubstr("clients:1: 'nonsense' is no role"));
}

TEST_F(Security, OfTheClusterIsByItsKeyAndMembersWorkAsWithoutOne) {
  keygen("cluster");
  Nodes nodes({"a", "b"}, {"security.cluster_key_file=" + path("cluster")});
  auto source = nodes["a"].allocate("src", kBytes);
  auto destination = nodes["b"].allocate("dst", kBytes);
  nodes["a"].fill("src", 1);
  const Shuffle shuffle(kBytes, kPage, 7);
  EXPECT_EQ(nodes["a"].transfer(shuffle.write("src", "b", "dst")).wait().state, State::kDone);
  EXPECT_TRUE(shuffle.verify(nodes["a"], "src", nodes["b"], "dst"));
  // A member that restarts has another session key; its peer takes part with it as before.
  const auto before = nodes.incarnation("b");
  destination.detach();
  nodes.kill("b");
  nodes.start("b");
  nodes.await_connected("a", "b", before);
  auto again = nodes["b"].allocate("dst", kBytes);
  EXPECT_EQ(nodes["a"].transfer(shuffle.write("src", "b", "dst")).wait().state, State::kDone);
  EXPECT_TRUE(shuffle.verify(nodes["a"], "src", nodes["b"], "dst"));
  EXPECT_THAT(log_of(nodes, "a"), testing::Not(HasSubstr("audit:")));
}

TEST_F(Security, OfTheClusterKeepsStrangersOut) {
  keygen("cluster");
  keygen("elsewhere");
  Nodes nodes({"a"}, {"security.cluster_key_file=" + path("cluster")});
  for (const std::string& key : {std::string(), path("elsewhere")}) {
    app::ChildProcess stranger(
        {std::string(PENSTOCK_BIN_DIR) + "/penstockd", "--set", "node.name=x", "--set",
         "request.bind=ipc://" + path("x.ipc"), "--set", "gossip.bind=tcp://127.0.0.1:*", "--set",
         "gossip.members=" + nodes.gossip_endpoint("a"), "--set", "fabric.cards=[{domain: lo}]",
         "--set", "devices.pin=false", "--set", "devices.gpus=none", "--set",
         "security.cluster_key_file=" + key},
        path("x.log"));
    EXPECT_TRUE(
        eventually([&] { return log_of(nodes, "a").find("audit: refused") != std::string::npos; }));
    EXPECT_EQ(nodes["a"].nodes().size(), 1u);
    stranger.stop(5s);
    std::ofstream(nodes.folder() / "a.log", std::ios::trunc);
  }
}

TEST_F(Security, OfARegionIsByTheNodesThatItsOwnerAllows) {
  Nodes nodes({"a", "b"}, {"node.labels={rack: r7}"});
  auto source = nodes["a"].allocate("src", kBytes);
  nodes["b"].call("allocate", R"({"name":"mine","bytes":4194304,"allow":["c","rack=r8"]})");
  nodes["b"].call("allocate", R"({"name":"rack","bytes":4194304,"allow":["rack=r7"]})");
  auto named = nodes["b"].allocate("named", kBytes, "", client::MapMemory::kNo, {"a"});
  const Shuffle shuffle(kBytes, kPage, 7);
  const auto refused = nodes["a"].transfer(shuffle.write("src", "b", "mine")).wait();
  EXPECT_EQ(refused.state, State::kFailed);
  EXPECT_EQ(refused.error_code, "DENIED");
  for (const char* region : {"rack", "named"})
    EXPECT_EQ(nodes["a"].transfer(shuffle.write("src", "b", region)).wait().state, State::kDone);
}

TEST_F(Security, OfMemoryOutlivesNoClientThatDiesUnlessItIsKept) {
  Nodes nodes({"a"});
  nodes["a"].allocate("mine", kBytes, "", client::MapMemory::kNo).detach();
  {
    client::Client dying({.endpoint = nodes.endpoint("a"), .lease_ms = 300});
    dying.call("allocate", R"({"name":"lost","bytes":4096})");
    dying.allocate("left", 4096, "", client::MapMemory::kNo).detach();
    // While it lives it is heard, however little it asks.
    std::this_thread::sleep_for(900ms);
    EXPECT_EQ(nodes["a"].regions().size(), 3u);
  }
  EXPECT_TRUE(eventually([&] { return nodes["a"].regions().size() == 2; }));
  for (const auto& region : nodes["a"].regions()) EXPECT_NE(region.name, "lost");
}

TEST_F(Security, LimitsOneClientWithoutTouchingAnother) {
  Nodes nodes({"a"}, {"limits.client_regions=2", "limits.client_region_bytes=8 MiB"});
  client::Client other({.endpoint = nodes.endpoint("a")});
  auto one = nodes["a"].allocate("1", kBytes), two = nodes["a"].allocate("2", kPage);
  EXPECT_EQ(code_of([&] { nodes["a"].allocate("3", kPage); }), "RESOURCE_EXHAUSTED");
  two.release();
  EXPECT_EQ(code_of([&] { nodes["a"].allocate("3", 2 * kBytes); }), "RESOURCE_EXHAUSTED");
  auto three = nodes["a"].allocate("3", kBytes);
  auto others = other.allocate("4", 2 * kBytes);
}

TEST_F(Security, OfTheBytesIsByTheirDigestsWhereThatIsAskedFor) {
  Nodes nodes({"a", "b"});
  auto source = nodes["a"].allocate("src", kBytes);
  auto destination = nodes["b"].allocate("dst", kBytes);
  nodes["a"].fill("src", 1);
  const Shuffle shuffle(kBytes, kPage, 7);
  auto write = shuffle.write("src", "b", "dst");
  write.verify = true;
  EXPECT_EQ(nodes["a"].transfer(write).wait().state, State::kDone);
  auto read = shuffle.read("src", "b", "dst");
  read.verify = true;
  EXPECT_EQ(nodes["a"].transfer(read).wait().state, State::kDone);
  // Somebody writes to a page of the destination all the time: it is never what was sent for long.
  std::atomic<bool> over{false};
  const auto page = shuffle.destination.at(5);
  std::thread vandal([&] {
    auto* byte = reinterpret_cast<volatile unsigned char*>(destination.data().data()) +
                 std::uint64_t{page} * kPage;
    for (unsigned char i = 0; !over; ++i) *byte = i;
  });
  client::TransferResult result;
  for (int i = 0; i < 50 && result.state != State::kFailed; ++i)
    result = nodes["a"].transfer(write).wait();
  over = true;
  vandal.join();
  EXPECT_EQ(result.state, State::kFailed);
  EXPECT_EQ(result.error_code, "PROVIDER");
  EXPECT_THAT(result.error_message, HasSubstr("verify: page 5 of 64 differs"));
}

}  // namespace
}  // namespace penstock::integration
