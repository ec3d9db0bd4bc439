// The ring between a client and its service, with real services: the same as by ZeroMQ, sooner.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/eventually.hpp"
#include "tests/integration/nodes.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using client::Client;
using nlohmann::json;
using State = client::TransferResult::State;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kPages = 256;

class RingTest : public testing::Test {
 protected:
  void start(std::vector<std::string> settings = {}) {
    nodes_ = std::make_unique<Nodes>(std::vector<std::string>{"a", "b"}, std::move(settings));
    for (const char* node : {"a", "b"}) {
      regions_.push_back((*nodes_)[node].allocate("r", kPages * kPage, "", client::MapMemory::kNo));
      regions_.back().detach();
      (*nodes_)[node].fill("r", 1);
    }
  }
  client::Options options(std::uint32_t spin_us = 0) const {
    return {.endpoint = nodes_->endpoint("a"), .timeout_ms = 15000, .spin_us = spin_us};
  }
  client::TransferSpec page(std::uint32_t index) const {
    client::TransferSpec spec{.region = "r", .targets = {{"b", "r"}}};
    index_[index % kPages] = index % kPages;
    spec.layout = client::Pages{.page_bytes = kPage,
                                .source_pages = {&index_[index % kPages], 1},
                                .destination_pages = {&index_[index % kPages], 1}};
    return spec;
  }
  json requests() { return json::parse((*nodes_)["a"].status())["requests"]; }

  std::unique_ptr<Nodes> nodes_;
  std::vector<client::Region> regions_;
  mutable std::vector<std::uint32_t> index_ = std::vector<std::uint32_t>(kPages);
};

TEST_F(RingTest, EverythingIsAskedAndToldByTheRing) {
  start();
  Client client(options(200));
  ASSERT_TRUE(eventually([&] { return client.has_ring(); }));
  const json before = requests();
  std::atomic<int> events{0};
  std::atomic<int> called{0};
  auto subscription = client.subscribe({"transfers"}, [&](const client::Event&) { ++events; });
  for (std::uint32_t i = 0; i < 50; ++i) {
    auto transfer = client.transfer(page(i));
    transfer.on_done([&](const client::TransferResult& result) { called += result.done(); });
    ASSERT_EQ(transfer.wait().state, State::kDone);
  }
  EXPECT_TRUE(eventually([&] { return events == 50 && called == 50; })) << events << ' ' << called;
  EXPECT_THROW(client.transfer({.region = "nowhere", .targets = {{"b", "r"}}}), client::Error);
  const json after = requests();
  EXPECT_GE(after["by_ring"].get<int>() - before["by_ring"].get<int>(), 52);
  EXPECT_GE(after["sent_by_ring"].get<int>() - before["sent_by_ring"].get<int>(), 102);
}

TEST_F(RingTest, ManyThreadsShareOne) {
  start();
  Client client(options(100));
  ASSERT_TRUE(eventually([&] { return client.has_ring(); }));
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < 50; ++i) {
        const std::uint32_t index = 64 * t + i;
        client::TransferSpec spec{.region = "r", .targets = {{"b", "r"}}};
        spec.layout = client::Pages{
            .page_bytes = kPage, .source_pages = {&index, 1}, .destination_pages = {&index, 1}};
        done += client.transfer(spec).wait().done();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(done, 200);
}

TEST_F(RingTest, AFullRingAndLongListsDelayButLoseNothing) {
  start({"request.ring_bytes=16KiB"});
  Client client(options());
  ASSERT_TRUE(eventually([&] { return client.has_ring(); }));
  std::vector<std::uint32_t> many(4000);  // 16 KB each: by ZeroMQ, between the others
  for (std::uint32_t i = 0; i < many.size(); ++i) many[i] = i % kPages;
  std::vector<client::Transfer> transfers;
  for (std::uint32_t i = 0; i < 600; ++i) {
    client::TransferSpec spec = page(i);
    if (i % 50 == 0)
      spec.layout = client::Pages{.page_bytes = 16,
                                  .source_stride = kPage,
                                  .destination_stride = kPage,
                                  .source_pages = many,
                                  .destination_pages = many};
    transfers.push_back(client.submit(spec));
  }
  for (const auto& result : client::wait_all(transfers))
    ASSERT_EQ(result.state, State::kDone) << result.error_message;
  EXPECT_TRUE(client.has_ring());
}

TEST_F(RingTest, AServiceThatIsKilledAndStartedAgainGivesAnother) {
  start();
  Client client(options(100));
  ASSERT_TRUE(eventually([&] { return client.has_ring(); }));
  const auto mine = client.allocate("mine", kPage, "", client::MapMemory::kNo);
  nodes_->kill("a");
  ASSERT_TRUE(eventually([&] { return !client.has_ring(); })) << "its end is seen";
  nodes_->restart_process("a");
  ASSERT_TRUE(eventually([&] { return client.has_ring(); }));
  const auto regions = client.regions();
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].name, "mine") << "made again, as without a ring";
}

TEST_F(RingTest, AClientThatStandsStillBeyondItsLeaseGoesOnByZeroMQ) {
  start();
  auto with_lease = options();
  with_lease.lease_ms = 300;
  Client client(with_lease);
  ASSERT_TRUE(eventually([&] { return client.has_ring(); }));
  std::promise<void> go_on;
  auto subscription =
      client.subscribe({"transfers"}, [&, first = true](const client::Event&) mutable {
        // The client's thread stands still here, so its lease is not renewed.
        if (std::exchange(first, false)) go_on.get_future().wait();
      });
  auto transfer = client.submit(page(1));
  std::this_thread::sleep_for(1s);
  go_on.set_value();
  EXPECT_TRUE(eventually([&] { return !client.has_ring(); })) << "the service has ended it";
  EXPECT_EQ(client.transfer(page(2)).wait().state, State::kDone);
}

TEST_F(RingTest, AServiceThatGivesNoneIsAskedByZeroMQ) {
  start({"request.rings=0"});
  Client client(options(100));
  EXPECT_EQ(client.transfer(page(3)).wait().state, State::kDone);
  EXPECT_FALSE(client.has_ring());
  EXPECT_EQ(requests()["by_ring"], 0);
}

}  // namespace
}  // namespace penstock::integration
