// What an operator meets: starting, refusing, being idle, being shouted at, stopping.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "tests/eventually.hpp"
#include "tests/integration/nodes.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using State = client::TransferResult::State;

/// Runs penstockd with these settings until it ends; returns what it said.
struct Attempt {
  explicit Attempt(const std::vector<std::string>& settings) {
    std::vector<std::string> argv{std::string(PENSTOCK_BIN_DIR) + "/penstockd"};
    for (const auto& setting : settings) {
      argv.emplace_back("--set");
      argv.push_back(setting);
    }
    app::ChildProcess process(argv, folder.path() / "log");
    ended = process.wait(20s);
    how = process.how_it_ended();
    said = process.log_tail(50);
  }
  app::TemporaryFolder folder;
  bool ended = false;
  std::string how;
  std::string said;
};

TEST(Service, AProviderThatIsNotThereIsAnErrorThatListsWhatIs) {
  Attempt attempt({"fabric.provider=efa", "request.bind=tcp://127.0.0.1:*"});
  EXPECT_TRUE(attempt.ended);
  EXPECT_EQ(attempt.how, "exited with 1");
  EXPECT_NE(attempt.said.find("efa"), std::string::npos) << attempt.said;
  EXPECT_NE(attempt.said.find("tcp"), std::string::npos) << attempt.said;
}

TEST(Service, AnAddressThatNoInterfaceHasIsAnError) {
  Attempt attempt({"fabric.provider=tcp", "fabric.cards=[{address: 203.0.113.77}]",
                   "request.bind=tcp://127.0.0.1:*"});
  EXPECT_TRUE(attempt.ended);
  EXPECT_EQ(attempt.how, "exited with 1");
  EXPECT_NE(attempt.said.find("203.0.113.77"), std::string::npos) << attempt.said;
}

TEST(Service, AWrongKeyIsAUsageErrorThatNamesIt) {
  Attempt attempt({"fabric.provder=tcp"});
  EXPECT_EQ(attempt.how, "exited with 2");
  EXPECT_NE(attempt.said.find("provder"), std::string::npos) << attempt.said;
}

TEST(Service, AnEndpointThatIsTakenIsAnErrorThatNamesIt) {
  Nodes nodes({"a"});
  Attempt attempt({"node.name=z", "request.bind=" + nodes.endpoint("a"),
                   "gossip.bind=tcp://127.0.0.1:*", "fabric.cards=[{domain: lo}]"});
  EXPECT_EQ(attempt.how, "exited with 1");
  EXPECT_NE(attempt.said.find("a.ipc"), std::string::npos) << attempt.said;
}

TEST(Service, IsIdleWhenThereIsNothingToDo) {
  Nodes nodes({"a", "b"});
  std::this_thread::sleep_for(500ms);
  const double before = nodes.process("a").cpu_seconds();
  std::this_thread::sleep_for(5s);
  // CPU time, not wall time: a busy machine does not change it. 1 % of 5 s is 50 ms.
  EXPECT_LE(nodes.process("a").cpu_seconds() - before, 0.05);
}

TEST(Service, ARegionThatIsMadeForAClientWhoseLeaseHasEndedIsReleased) {
  Nodes nodes({"a"});
  {
    client::Options options{.endpoint = nodes.endpoint("a")};
    options.lease_ms = 0;
    options.timeout_ms = 60000;
    client::Client dies(options);
    dies.call("hello", R"({"client":"dies", "lease_ms":250})");
    // It takes longer to make than the client has left.
    dies.call("allocate", R"({"name":"late", "bytes":1073741824})");
  }
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (!nodes["a"].regions().empty() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(nodes["a"].regions().empty());
}

TEST(Service, OnlyALeaseThatEndsWithSomethingLeftIsAWarning) {
  Nodes nodes({"a"});
  { client::Client closes({.endpoint = nodes.endpoint("a"), .lease_ms = 150}); }
  {
    client::Client dies({.endpoint = nodes.endpoint("a"), .lease_ms = 300});
    dies.call("allocate", R"({"name":"kv", "bytes":4096})");
  }
  const std::string words = "a client was not heard within its lease: 0 transfers cancelled, ";
  const auto log = [&] { return nodes.process("a").log_tail(100); };
  EXPECT_TRUE(eventually([&] { return log().find(words + "1 regions") != std::string::npos; }))
      << log();
  EXPECT_EQ(log().find(words + "0 regions"), std::string::npos) << log();
}

TEST(Service, SaysWhyItDrains) {
  Nodes nodes({"a", "b"});
  nodes["a"].call("drain", "{}");
  nodes.signal("b", SIGTERM);
  for (const char* name : {"a", "b"}) EXPECT_TRUE(nodes.process(name).wait(20s));
  EXPECT_NE(nodes.process("a").log_tail(50).find("asked to drain: draining"), std::string::npos);
  EXPECT_NE(nodes.process("b").log_tail(50).find("signal 15: draining"), std::string::npos);
}

TEST(Service, ASecondSignalEndsItAtOnce) {
  Nodes nodes({"a", "b"});
  nodes["a"].allocate("src", 64 << 20).detach();
  nodes["b"].allocate("dst", 64 << 20).detach();
  Shuffle shuffle(64 << 20, 64 << 10, 1);
  nodes.signal("b", SIGSTOP);  // so that a's transfer cannot end by itself
  auto transfer = nodes["a"].transfer(shuffle.write("src", "b", "dst"));
  nodes.signal("a", SIGTERM);
  std::this_thread::sleep_for(300ms);
  EXPECT_TRUE(nodes.process("a").running());
  nodes.signal("a", SIGTERM);
  EXPECT_TRUE(nodes.process("a").wait(5s));
  nodes.signal("b", SIGCONT);
}

/// Connects to every TCP port that the process listens on and sends noise.
void shout_at(std::uint16_t port, std::mt19937& random) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    std::vector<std::uint32_t> noise(256);
    for (auto& word : noise) word = random();
    [[maybe_unused]] const auto sent =
        ::send(socket, noise.data(), noise.size() * sizeof noise[0], MSG_NOSIGNAL);
  }
  ::close(socket);
}

/// The TCP ports on 127.0.0.1 that `pid` listens on, from /proc.
std::vector<std::uint16_t> listening_ports(pid_t pid) {
  std::vector<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid))) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.starts_with("socket:[")) inodes.push_back(target.substr(8, target.size() - 9));
  }
  std::vector<std::uint16_t> ports;
  std::ifstream table(fmt::format("/proc/{}/net/tcp", pid));
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
        timeout >> inode;
    if (state == "0A" && std::find(inodes.begin(), inodes.end(), inode) != inodes.end())
      ports.push_back(
          static_cast<std::uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
  }
  return ports;
}

TEST(Service, NoiseOnAnyOfItsPortsCostsNothingButTheConnection) {
  Nodes nodes({"a", "b"});
  nodes["a"].allocate("src", 1 << 20).detach();
  nodes["b"].allocate("dst", 1 << 20).detach();
  Shuffle shuffle(1 << 20, 64 << 10, 1);
  const auto ports = listening_ports(nodes.process("b").pid());
  ASSERT_GE(ports.size(), 2u);  // gossip, and the card's endpoints
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round)
    for (const auto port : ports) shout_at(port, random);
  EXPECT_TRUE(nodes.process("b").running());
  EXPECT_EQ(nodes["a"].transfer(shuffle.write("src", "b", "dst")).wait().state, State::kDone);
  EXPECT_TRUE(shuffle.verify(nodes["a"], "src", nodes["b"], "dst"));
}

TEST(Service, ThirtyTwoServicesStartAtOnceOnOneMachine) {
  app::TemporaryFolder folder;
  std::vector<std::unique_ptr<app::ChildProcess>> services;
  for (int i = 0; i < 32; ++i) {
    const auto name = fmt::format("n{}", i);
    const auto socket = (folder.path() / (name + ".ipc")).string();
    services.push_back(std::make_unique<app::ChildProcess>(
        std::vector<std::string>{std::string(PENSTOCK_BIN_DIR) + "/penstockd", "--set",
                                 "node.name=" + name, "--set", "request.bind=ipc://" + socket,
                                 "--set", "gossip.bind=tcp://127.0.0.1:*", "--set",
                                 "fabric.cards=[{domain: lo, address: 127.0.0.1}]", "--set",
                                 "devices.pin=false", "--set", "caf.threads=1"},
        folder.path() / (name + ".log")));
  }
  for (int i = 0; i < 32; ++i) {
    const auto socket = (folder.path() / fmt::format("n{}.ipc", i)).string();
    client::Client client({.endpoint = "ipc://" + socket, .timeout_ms = 60000});
    EXPECT_EQ(client.service().node, fmt::format("n{}", i));
  }
}

}  // namespace
}  // namespace penstock::integration
