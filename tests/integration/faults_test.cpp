// Faults that users of systems like this report, on real services over tcp loopback.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/integration/nodes.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using State = client::TransferResult::State;

constexpr std::uint64_t kPage = 4096;

client::TransferSpec one_page(std::uint32_t source, std::uint32_t destination) {
  client::TransferSpec spec;
  spec.region = "src";
  spec.targets = {{"b", "dst"}};
  spec.layout = client::Ranges{.ranges = {{source * kPage, destination * kPage, kPage}}};
  return spec;
}

void allocate_both(Nodes& nodes, std::uint64_t bytes) {
  nodes["a"].allocate("src", bytes, "", client::MapMemory::kNo).detach();
  nodes["b"].allocate("dst", bytes, "", client::MapMemory::kNo).detach();
}

std::size_t open_files(pid_t pid) {
  const std::filesystem::directory_iterator files(fmt::format("/proc/{}/fd", pid));
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

template <class Condition>
bool becomes_true(Condition condition, std::chrono::seconds patience = 20s) {
  for (const auto end = std::chrono::steady_clock::now() + patience;;) {
    if (condition()) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(20ms);
  }
}

/// A sparse segment of a client's own.
class Segment {
 public:
  Segment(const std::string& what, std::uint64_t bytes)
      : name_(fmt::format("/faults-test-{}-{}", what, ::getpid())),
        fd_(::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(bytes)) != 0)
      throw std::runtime_error("no segment " + name_);
  }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment() {
    ::close(fd_);
    ::shm_unlink(name_.c_str());
  }
  const std::string& name() const { return name_; }
  void resize(std::uint64_t bytes) const {
    [[maybe_unused]] const int resized = ::ftruncate(fd_, static_cast<off_t>(bytes));
  }
  std::string read(std::uint64_t offset, std::size_t bytes) const {
    std::string data(bytes, 0);
    if (::pread(fd_, data.data(), bytes, static_cast<off_t>(offset)) < 0) data.clear();
    return data;
  }
  void write(std::uint64_t offset, const std::string& data) const {
    [[maybe_unused]] const auto written =
        ::pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset));
  }

 private:
  std::string name_;
  int fd_;
};

TEST(Faults, AnIdempotencyKeyBelongsToTheClientThatGaveIt) {
  Nodes nodes({"a", "b"});
  allocate_both(nodes, 1 << 20);
  client::Client other({.endpoint = nodes.endpoint("a")});
  auto spec = one_page(1, 2);
  spec.key = "step-1";
  auto mine = nodes["a"].transfer(spec);
  auto again = nodes["a"].transfer(spec);
  auto others = other.transfer(spec);
  EXPECT_EQ(mine.id(), again.id());
  EXPECT_NE(mine.id(), others.id());
  EXPECT_EQ(mine.wait().state, State::kDone);
  EXPECT_EQ(others.wait().state, State::kDone);
}

TEST(Faults, ClientsThatAreGoneAreSubscribersNoMore) {
  Nodes nodes({"a", "b"});
  allocate_both(nodes, 1 << 20);
  for (int i = 0; i < 20; ++i) {
    client::Client brief({.endpoint = nodes.endpoint("a")});
    brief.call("subscribe", R"({"topics": ["transfers"]})");  // and no word at its end
  }
  EXPECT_TRUE(becomes_true([&] {
    nodes["a"].transfer(one_page(0, 0)).wait();  // an event for everybody
    return nlohmann::json::parse(nodes["a"].status()).at("subscribers") == 0;
  }));
}

TEST(Faults, AKilledServiceLeavesNoSharedMemoryOnceItRunsAgain) {
  const auto segment_of = [](client::Client& client) {
    auto region = client.allocate("src", 1 << 20, "", client::MapMemory::kNo);
    region.detach();
    return "/dev/shm" + region.info().shared_name;
  };
  Nodes nodes({"a"}), bystander({"a"});
  const auto segment = segment_of(nodes["a"]);
  const auto of_the_living = segment_of(bystander["a"]);
  nodes.kill("a");
  ASSERT_TRUE(std::filesystem::exists(segment));
  nodes.start("a");
  EXPECT_FALSE(std::filesystem::exists(segment));
  EXPECT_TRUE(std::filesystem::exists(of_the_living));
}

TEST(Faults, TooFewOpenFilesAreAnErrorThatSaysHowToRaiseThem) {
  app::TemporaryFolder folder;
  app::ChildProcess service(
      {"/bin/sh", "-c",
       fmt::format("ulimit -n 64; exec {}/penstockd --set gossip.bind=tcp://127.0.0.1:* "
                   "--set request.bind=tcp://127.0.0.1:*",
                   PENSTOCK_BIN_DIR)},
      folder.path() / "log");
  EXPECT_TRUE(service.wait(20s));
  EXPECT_EQ(service.how_it_ended(), "exited with 1");
  EXPECT_NE(service.log_tail(5).find("ulimit -n"), std::string::npos) << service.log_tail(5);
}

TEST(Faults, ASegmentThatHasNotAllItsMemoryAndCannotGetItIsRefused) {
  Nodes nodes({"a"});
  struct statvfs shm {};
  ASSERT_EQ(::statvfs("/dev/shm", &shm), 0);
  Segment segment("huge", (shm.f_bavail + (1 << 20)) * shm.f_frsize);
  try {
    nodes["a"].register_region("src", segment.name(), 0, 1 << 20).detach();
    FAIL() << "registered";
  } catch (const client::Error& error) {
    EXPECT_EQ(error.code(), "RESOURCE_EXHAUSTED");
    EXPECT_NE(std::string(error.what()).find("remount"), std::string::npos) << error.what();
  }
}

TEST(Faults, ASegmentThatItsOwnerShortensCostsTheRegionNotTheService) {
  Segment segment("short", 1 << 20);
  Nodes nodes({"a", "b"});
  nodes["a"].allocate("src", 1 << 20).detach();
  nodes["b"].register_region("dst", segment.name(), 0, 1 << 20).detach();
  EXPECT_EQ(nodes["a"].transfer(one_page(1, 1)).wait().state, State::kDone);
  segment.resize(0);
  auto spec = one_page(1, 1);
  spec.deadline_ms = 2000;
  nodes["a"].transfer(spec).wait();  // whatever it says: the services live
  try {
    nodes["b"].fill("dst", 1);
    ADD_FAILURE() << "filled what is not there";
  } catch (const client::Error& error) {
    EXPECT_EQ(error.code(), "STALE_REGION") << error.what();
  }
  nodes["b"].release("dst", true);
  segment.resize(1 << 20);
  nodes["b"].register_region("dst", segment.name(), 0, 1 << 20).detach();
  nodes.await_connected("a", "b");
  EXPECT_EQ(nodes["a"].transfer(one_page(1, 1)).wait().state, State::kDone);
}

TEST(Faults, OffsetsBeyondFourGibReachTheirBytes) {
  constexpr std::uint64_t kBytes = std::uint64_t{5} << 30;
  constexpr std::uint64_t kFrom = (std::uint64_t{4} << 30) + 12345;
  constexpr std::uint64_t kTo = (std::uint64_t{4} << 30) + (512 << 20) + 7;
  Segment source("from", kBytes), destination("to", kBytes);
  Nodes nodes({"a", "b"});
  nodes["a"].register_region("src", source.name(), 0, kBytes).detach();
  nodes["b"].register_region("dst", destination.name(), 0, kBytes).detach();
  source.write(kFrom, std::string(300000, 'x'));
  client::TransferSpec spec;
  spec.region = "src";
  spec.targets = {{"b", "dst"}};
  spec.layout = client::Ranges{.ranges = {{kFrom, kTo, 300000}}};
  EXPECT_EQ(nodes["a"].transfer(spec).wait().state, State::kDone);
  EXPECT_EQ(destination.read(kTo, 300000), std::string(300000, 'x'));
  EXPECT_EQ(destination.read(kTo - 1, 1), std::string(1, 0));
  EXPECT_EQ(destination.read(kTo + 300000, 1), std::string(1, 0));
}

TEST(Faults, TheSameMemoryRegisteredSeveralTimesIsIndependent) {
  Segment segment("shared", 1 << 20);
  segment.write(0, std::string(1 << 20, 'y'));
  Nodes nodes({"a", "b"});
  nodes["b"].allocate("dst", 1 << 20).detach();
  nodes["a"].register_region("one", segment.name(), 0, 1 << 20).detach();
  nodes["a"].register_region("two", segment.name(), 0, 1 << 20).detach();
  nodes["a"].register_region("src", segment.name(), 64 << 10, 64 << 10).detach();
  nodes["a"].release("one");
  EXPECT_EQ(nodes["a"].transfer(one_page(3, 4)).wait().state, State::kDone);
  auto spec = one_page(5, 6);
  spec.region = "two";
  EXPECT_EQ(nodes["a"].transfer(spec).wait().state, State::kDone);
  const std::vector<std::uint32_t> pages{4, 6};
  EXPECT_EQ(nodes["b"].digest("dst", kPage, pages), nodes["a"].digest("two", kPage, pages));
}

TEST(Faults, TwentyThousandPagesLandWhereTheyShould) {
  Nodes nodes({"a", "b"});
  constexpr std::uint64_t kBytes = 20000 * kPage;
  allocate_both(nodes, kBytes);
  nodes["a"].fill("src", 1);
  const Shuffle shuffle(kBytes, kPage, 5);
  EXPECT_EQ(nodes["a"].transfer(shuffle.write("src", "b", "dst")).wait().state, State::kDone);
  EXPECT_TRUE(shuffle.verify(nodes["a"], "src", nodes["b"], "dst"));
}

TEST(Faults, AThousandTransfersAtOnceEachEndOnceUnderTheirOwnId) {
  Nodes nodes({"a", "b"});
  allocate_both(nodes, 1 << 20);
  nodes["a"].fill("src", 1);
  const auto before = open_files(nodes.process("b").pid());
  std::vector<client::TransferSpec> specs;
  for (std::uint32_t i = 0; i < 1000; ++i) specs.push_back(one_page(i % 256, i % 256));
  std::set<std::uint64_t> ids;
  for (auto& transfer : nodes["a"].transfer(specs)) {
    EXPECT_EQ(transfer.wait().state, State::kDone);
    ids.insert(transfer.id());
  }
  EXPECT_EQ(ids.size(), 1000u);
  EXPECT_EQ(nodes["a"].digest("src", kPage), nodes["b"].digest("dst", kPage));
  const auto totals = nlohmann::json::parse(nodes["a"].status()).at("transfers");
  EXPECT_EQ(totals.at("accepted"), 1000);
  EXPECT_EQ(totals.at("done"), 1000);
  EXPECT_LE(open_files(nodes.process("b").pid()), before + 2);
}

TEST(Faults, WritesQueuedToAPeerThatIsKilledAllEndAndItsSuccessorWorks) {
  Nodes nodes({"a", "b"});
  allocate_both(nodes, 1 << 20);
  nodes.signal("b", SIGSTOP);  // so that they queue
  std::vector<client::TransferSpec> specs;
  for (std::uint32_t i = 0; i < 2000; ++i) specs.push_back(one_page(i % 256, i % 256));
  auto transfers = nodes["a"].transfer(specs);
  const auto old = nodes.incarnation("b");
  nodes.kill("b");
  nodes.start("b");
  for (auto& transfer : transfers) EXPECT_EQ(transfer.wait().state, State::kFailed);
  nodes["b"].allocate("dst", 1 << 20).detach();
  nodes.await_connected("a", "b", old);
  EXPECT_EQ(nodes["a"].transfer(one_page(0, 0)).wait().state, State::kDone);
}

TEST(Faults, APeerThatRestartsAgainAndAgainCostsNoOpenFiles) {
  Nodes nodes({"a", "b"});
  allocate_both(nodes, 1 << 20);
  EXPECT_EQ(nodes["a"].transfer(one_page(0, 0)).wait().state, State::kDone);
  const auto before = open_files(nodes.process("a").pid());
  for (int round = 0; round < 5; ++round) {
    const auto old = nodes.incarnation("b");
    nodes.kill("b");
    nodes.start("b");
    nodes["b"].allocate("dst", 1 << 20).detach();
    nodes.await_connected("a", "b", old);
    EXPECT_EQ(nodes["a"].transfer(one_page(0, 0)).wait().state, State::kDone);
  }
  EXPECT_TRUE(becomes_true([&] { return open_files(nodes.process("a").pid()) <= before + 2; }))
      << before << " before, " << open_files(nodes.process("a").pid()) << " after";
}

TEST(Faults, NodesFindEachOtherOverIpv6Gossip) {
  if (!std::filesystem::exists("/proc/net/if_inet6")) GTEST_SKIP() << "no IPv6 here";
  app::TemporaryFolder folder;
  std::vector<std::unique_ptr<app::ChildProcess>> services;
  const auto start = [&](const std::string& name, const std::string& members) {
    services.push_back(std::make_unique<app::ChildProcess>(
        std::vector<std::string>{
            std::string(PENSTOCK_BIN_DIR) + "/penstockd", "--set", "node.name=" + name, "--set",
            fmt::format("request.bind=ipc://{}/{}.ipc", folder.path().string(), name), "--set",
            "gossip.bind=tcp://[::1]:*", "--set", "gossip.members=" + members, "--set",
            "fabric.cards=[{domain: lo, address: 127.0.0.1}]", "--set", "devices.pin=false"},
        folder.path() / (name + ".log")));
    return client::Client({.endpoint = fmt::format("ipc://{}/{}.ipc", folder.path().string(), name),
                           .timeout_ms = 20000});
  };
  auto a = start("a", "[]");
  const auto log = services[0]->log_tail(20);
  const auto at = log.find("tcp://[::1]:");
  ASSERT_NE(at, std::string::npos) << log;
  auto b = start("b", "[\"" + log.substr(at, log.find('\n', at) - at) + "\"]");
  EXPECT_TRUE(becomes_true([&] {
    const auto known = b.nodes();
    return std::ranges::any_of(
        known, [](const auto& node) { return node.name == "a" && node.state == "connected"; });
  })) << services[1]->log_tail(20);
}

TEST(Faults, AnIpv6AddressIsAdvertisedInBrackets) {
  app::TemporaryFolder folder;
  const auto socket = "ipc://" + (folder.path() / "s.ipc").string();
  app::ChildProcess service(
      {std::string(PENSTOCK_BIN_DIR) + "/penstockd", "--set", "request.bind=" + socket, "--set",
       "gossip.bind=tcp://*:*", "--set", "gossip.advertise=2001:db8::7", "--set",
       "security.insecure=true", "--set", "fabric.cards=[{domain: lo, address: 127.0.0.1}]",
       "--set", "devices.pin=false"},
      folder.path() / "log");
  client::Client client({.endpoint = socket, .timeout_ms = 20000});
  EXPECT_TRUE(becomes_true([&] {
    return service.log_tail(20).find("tcp://[2001:db8::7]:") != std::string::npos;
  })) << service.log_tail(20);
}

}  // namespace
}  // namespace penstock::integration
