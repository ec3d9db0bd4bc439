// Streams of small urgent writes while clients cancel, regions go and nodes die: no wrong byte, and
// each ends once. The regions of both nodes are mapped here, so that every byte can be looked at.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "tests/eventually.hpp"
#include "tests/integration/nodes.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using client::Client;
using client::TransferResult;
using State = TransferResult::State;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kPages = 64;
/// A flood's pause, now and then: what ThreadSanitizer has to say of each message takes its time.
constexpr auto kPause = kSanitized ? 20'000us : 200us;
constexpr std::uint64_t kMarker = 0x6d61726b65723a29;

/// How often each transfer's end was told.
class Ends {
 public:
  explicit Ends(Client& client)
      : subscription_(client.subscribe({"transfers"}, [this](const client::Event& event) {
          const auto* ended = std::get_if<TransferResult>(&event.body);
          if (ended == nullptr) return;
          const std::lock_guard lock(mutex_);
          ++told_[ended->id];
        })) {}
  /// Each of these once, and none of them twice, within 20 s.
  void expect_each_once(const std::vector<std::uint64_t>& ids) {
    eventually([&] {
      const std::lock_guard lock(mutex_);
      return std::ranges::all_of(ids, [&](auto id) { return told_.contains(id); });
    });
    std::this_thread::sleep_for(50ms);  // time for a second one
    const std::lock_guard lock(mutex_);
    for (const std::uint64_t id : ids) EXPECT_EQ(told_[id], 1) << "transfer " << id;
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, int> told_;
  client::Subscription subscription_;
};

/// With these settings of both nodes.
class SmallWrites : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  SmallWrites() {
    for (const char* node : {"a", "b"}) regions.emplace(node, nodes[node].allocate("r", kBytes));
  }
  std::span<std::byte> page(const std::string& node, std::uint32_t index) {
    return regions.at(node).data().subspan(index * kPage, kPage);
  }
  static void stamp(std::span<std::byte> page, std::uint64_t value) {
    for (std::size_t i = 0; i < page.size(); i += sizeof value)
      std::memcpy(page.data() + i, &value, sizeof value);
  }
  static bool has_stamp(std::span<const std::byte> page, std::uint64_t value) {
    for (std::size_t i = 0; i < page.size(); i += sizeof value)
      if (std::memcmp(page.data() + i, &value, sizeof value) != 0) return false;
    return true;
  }
  static client::TransferSpec write(const std::uint32_t& index, std::uint64_t epoch = 0) {
    client::TransferSpec spec{.region = "r", .targets = {{"b", "r", epoch}}};
    spec.layout = client::Pages{
        .page_bytes = kPage, .source_pages = {&index, 1}, .destination_pages = {&index, 1}};
    spec.lane = client::Lane::kUrgent;
    return spec;
  }
  client::Options awake() const {
    return {.endpoint = nodes.endpoint("a"), .timeout_ms = 15000, .spin_us = 500};
  }

  static constexpr std::uint64_t kBytes = kPages * kPage;
  Nodes nodes{{"a", "b"}, GetParam()};
  std::map<std::string, client::Region> regions;
  Client client{awake()};
  Ends ends{client};
};

// The gateway's thread runs the node actor while it waits awake: by default where cores are many.
INSTANTIATE_TEST_SUITE_P(Default, SmallWrites, testing::Values(std::vector<std::string>{}),
                         [](const auto&) { return "Default"; });
INSTANTIATE_TEST_SUITE_P(AtTheGateway, SmallWrites,
                         testing::Values(std::vector<std::string>{"request.ring_spin_us=500"}),
                         [](const auto&) { return "AtTheGateway"; });

TEST_P(SmallWrites, AllBytesAreThereOnceItsEndIsToldAndNoOthers) {
  constexpr std::uint32_t kThreads = 4, kEach = 100, kOwn = kPages / kThreads;
  std::mutex mutex;
  std::vector<std::uint64_t> ids;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint32_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::uint64_t> last(kOwn);
      std::mt19937 random(t + 1);
      for (std::uint32_t i = 1; i <= kEach; ++i) {
        const std::uint32_t own = random() % kOwn, index = t * kOwn + own;
        last[own] = std::uint64_t{t + 1} << 32 | i;
        stamp(page("a", index), last[own]);
        const auto result = client.transfer(write(index)).wait();
        wrong += result.state != State::kDone || result.path != "inline";
        for (std::uint32_t k = 0; k < kOwn; ++k)
          wrong += !has_stamp(page("b", t * kOwn + k), last[k]);
        const std::lock_guard lock(mutex);
        ids.push_back(result.id);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(ids.size(), kThreads * kEach);
  ends.expect_each_once(ids);
}

TEST_P(SmallWrites, OneThatIsCancelledWritesNothingAfterItsEnd) {
  std::vector<std::uint64_t> ids;
  std::mt19937 random(7);
  int cancelled = 0;
  for (std::uint32_t round = 1; round <= 10; ++round) {
    std::vector<client::Transfer> transfers;
    for (std::uint32_t index = 0; index < kPages; ++index) {
      stamp(page("a", index), round);
      transfers.push_back(client.submit(write(index)));
      if (random() % 2 == 0) transfers.back().cancel();  // while it can be under way
    }
    for (std::uint32_t index = 0; index < kPages; ++index) {
      const TransferResult result = transfers[index].wait();
      ids.push_back(result.id);
      ASSERT_TRUE(result.state == State::kDone || result.state == State::kCancelled)
          << result.error_message;
      cancelled += result.state == State::kCancelled;
      if (result.state == State::kDone) {
        EXPECT_TRUE(has_stamp(page("b", index), round));
      }
      EXPECT_EQ(result.remote, TransferResult::Remote::kQuiet);
      stamp(page("b", index), kMarker);  // ours again
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 3));
    for (std::uint32_t index = 0; index < kPages; ++index)
      ASSERT_TRUE(has_stamp(page("b", index), kMarker)) << "written after the end";
  }
  EXPECT_GT(cancelled, 0);
  ends.expect_each_once(ids);
}

TEST_P(SmallWrites, OnceTheirRegionIsReleasedNothingOfThemArrives) {
  std::vector<std::uint64_t> ids;
  for (std::uint32_t round = 1; round <= 4; ++round) {
    const std::uint64_t epoch = regions.at("b").epoch();
    for (std::uint32_t index = 0; index < kPages; ++index) stamp(page("a", index), round);
    std::atomic<bool> stop{false};
    const auto landed = std::make_shared<std::atomic<int>>(0);  // told behind our back
    std::vector<client::Transfer> transfers;
    std::thread writer([&] {
      for (std::uint32_t i = 0; !stop && i < 5000; ++i) {
        const std::uint32_t index = i % kPages;
        transfers.push_back(client.submit(write(index, epoch)));
        transfers.back().on_done(
            [landed](const TransferResult& result) { *landed += result.done(); });
        if (i % 16 == 0) std::this_thread::sleep_for(kPause);
      }
    });
    EXPECT_TRUE(eventually([&] { return *landed >= 10; }));
    regions.at("b").release(true);
    regions.at("b") = nodes["b"].allocate("r", kBytes);
    for (std::uint32_t index = 0; index < kPages; ++index) stamp(page("b", index), kMarker);
    std::this_thread::sleep_for(10ms + 2 * kPause);
    stop = true;
    writer.join();
    int done = 0, stale = 0;
    for (const auto& transfer : transfers) {
      const TransferResult result = transfer.wait();
      ids.push_back(result.id);
      done += result.state == State::kDone;
      stale += result.error_code == "STALE_REGION" || result.error_code == "NOT_FOUND";
    }
    EXPECT_EQ(done + stale, static_cast<int>(transfers.size()));
    EXPECT_GT(done, 0);
    EXPECT_GT(stale, 0);
    for (std::uint32_t index = 0; index < kPages; ++index)
      ASSERT_TRUE(has_stamp(page("b", index), kMarker)) << "of the region before";
  }
  ends.expect_each_once(ids);
}

TEST_P(SmallWrites, TheyAllEndOnceWhenTheOwnerIsKilled) {
  constexpr std::uint32_t kBehindTheKill = 100;
  const auto landed = std::make_shared<std::atomic<int>>(0);  // told behind our back
  std::vector<client::Transfer> transfers;
  std::size_t last = 20'000;
  for (std::uint32_t i = 0; i < last; ++i) {
    const std::uint32_t index = i % kPages;
    client::TransferSpec spec = write(index);
    spec.deadline_ms = 1000;
    transfers.push_back(client.submit(spec));
    transfers.back().on_done([landed](const TransferResult& result) { *landed += result.done(); });
    if (i % 16 == 0) std::this_thread::sleep_for(kPause);
    if (last < 20'000 || *landed < 10) continue;
    regions.at("b").detach();  // there will be nobody to release it
    nodes.kill("b");
    last = i + kBehindTheKill;
  }
  std::map<State, int> ended;
  std::vector<std::uint64_t> ids;
  for (const auto& transfer : transfers) {
    const TransferResult result = transfer.wait();
    ++ended[result.state];
    if (result.state != State::kRefused) ids.push_back(result.id);
  }
  EXPECT_GT(ended[State::kDone], 0);
  EXPECT_GT(ended[State::kFailed] + ended[State::kExpired], 0);
  EXPECT_EQ(ended[State::kLost], 0);
  ends.expect_each_once(ids);
}

}  // namespace
}  // namespace penstock::integration
