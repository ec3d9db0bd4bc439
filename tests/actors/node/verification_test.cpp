#include "actors/node/verification.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "tests/transport/memory/heap_memory.hpp"
#include "transport/memory/pattern.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using State = TransferResult::State;

constexpr std::uint64_t kPage = 512;
constexpr std::uint64_t kPages = 3000;

TransferResult ended() {
  TransferResult result;
  result.id = 1;
  return result;
}

class Verifying : public testing::Test {
 protected:
  Verifying() {
    for (const char* name : {"source", "destination"}) {
      auto region = std::make_shared<Region>();
      region->name = name;
      region->bytes = kPage * kPages;
      region->memory = std::make_shared<test::HeapMemory>(region->bytes);
      regions.publish(region);
    }
    std::iota(pages.begin(), pages.end(), 0u);
    std::reverse(pages.begin(), pages.end());
    fill_pattern(memory("source"), 7, 0);
    for (std::uint64_t i = 0; i < kPages; ++i)  // page i goes to page kPages - 1 - i
      std::memcpy(memory("destination").data() + (kPages - 1 - i) * kPage,
                  memory("source").data() + i * kPage, kPage);
    for (std::uint32_t i = 0; i < kPages; ++i) from.push_back(i);
  }
  std::span<std::byte> memory(const std::string& name) {
    return (*regions.use(name))->memory->bytes();
  }
  void make(Direction direction) {
    Pages layout;
    layout.row_bytes = layout.source_pitch = layout.destination_pitch = kPage;
    layout.source_stride = layout.destination_stride = kPage;
    layout.source_pages = BlobList<std::uint32_t>::of(from);
    layout.destination_pages = BlobList<std::uint32_t>::of(pages);
    layout.bases = {{0, 0}};
    Admitted admitted;
    admitted.id = 1;
    admitted.direction = direction;
    admitted.plan = *Plan::make(layout, {});
    admitted.deadline = now + 60s;
    const bool write = direction == Direction::kWrite;
    admitted.local = std::make_shared<RegionUse>(*regions.use(write ? "source" : "destination"));
    other = std::make_shared<RegionUse>(*regions.use(write ? "destination" : "source"));
    auto made = Verification::make(admitted);
    ASSERT_TRUE(made) << made.error().message;
    verification = std::move(*made);
  }
  /// What the two nodes do with a batch.
  Result<std::uint64_t> compare(const Verification::Batch& batch) {
    const auto digests = digest_ranges(**verification->local(), batch.local);
    if (!digests) return tl::unexpected(digests.error());
    Verify question;
    question.pages = pages_of(batch.other, *digests);
    return compare_pages(**other, question).map([](const Verified& v) { return v.differing; });
  }
  Verification::Compare keep() {
    return [this](std::shared_ptr<const Verification::Batch> batch) {
      EXPECT_LE(batch->local.size(), Verification::kBatchPages);
      open.push_back(std::move(batch));
      EXPECT_LE(open.size(), Verification::kUnderWay);
    };
  }
  /// The newest first, so that the order of the answers does not matter.
  TransferResult run() {
    verification->start(ended(), now, keep());
    while (!open.empty()) {
      const auto batch = open.back();
      open.pop_back();
      verification->compared(batch->first, compare(*batch), now, keep());
    }
    EXPECT_TRUE(verification->ended());
    return verification->take_result(now + 5ms);
  }

  RegionTable regions;
  std::vector<std::uint32_t> from, pages = std::vector<std::uint32_t>(kPages);
  TimePoint now{1h};
  std::shared_ptr<RegionUse> other;
  std::unique_ptr<Verification> verification;
  std::vector<std::shared_ptr<const Verification::Batch>> open;
};

TEST_F(Verifying, SaysDoneWhenEveryPageIsTheSameOnBothSides) {
  for (const Direction direction : {Direction::kWrite, Direction::kRead}) {
    make(direction);
    const auto result = run();
    EXPECT_EQ(result.state, State::kDone) << result.error.message;
    EXPECT_EQ(result.elapsed_us, 5000u);
  }
}

TEST_F(Verifying, NamesTheFirstPageThatDiffersByOneBit) {
  for (const std::uint64_t page : {0ul, 1ul, 777ul, kPages - 1}) {
    for (const Direction direction : {Direction::kWrite, Direction::kRead}) {
      make(direction);
      auto& later = memory("destination")[0];  // the last page
      auto& byte = memory("destination")[(kPages - 1 - page) * kPage + 100];
      later ^= std::byte{1};
      byte ^= std::byte{1};
      const auto result = run();
      later ^= std::byte{1};
      byte ^= std::byte{1};
      EXPECT_EQ(result.state, State::kFailed);
      EXPECT_EQ(result.error.code, ErrorCode::kProvider);
      EXPECT_THAT(
          result.error.message,
          HasSubstr(fmt::format("page {} of {} differs: {} bytes at offset {} of the "
                                "source and {} of the destination",
                                page, kPages, kPage, page * kPage, (kPages - 1 - page) * kPage)));
    }
  }
}

TEST_F(Verifying, EndsAsFailedWhenTheOtherSideCannotBeAsked) {
  make(Direction::kWrite);
  verification->start(ended(), now, keep());
  const Error stale{ErrorCode::kStaleRegion, "released"};
  const std::size_t count = open.size();
  for (std::size_t i = 0; i < count; ++i)
    verification->compared(open[i]->first, tl::unexpected(stale), now, keep());
  ASSERT_TRUE(verification->ended());
  const auto result = verification->take_result(now);
  EXPECT_EQ(result.state, State::kFailed);
  EXPECT_EQ(result.error.code, ErrorCode::kStaleRegion);
  EXPECT_EQ(open.size(), count);  // nothing new is begun
}

TEST_F(Verifying, EndsOnceNothingIsUnderWayWhenItIsCancelledOrLate) {
  make(Direction::kWrite);
  verification->start(ended(), now, keep());
  verification->cancel();
  EXPECT_FALSE(verification->ended());
  const auto batches = std::exchange(open, {});
  for (const auto& batch : batches) verification->compared(batch->first, 0, now, keep());
  EXPECT_TRUE(verification->ended());
  EXPECT_EQ(verification->take_result(now).state, State::kCancelled);

  make(Direction::kWrite);
  verification->start(ended(), now, keep());
  for (const auto& batch : std::exchange(open, {}))
    verification->compared(batch->first, 0, now + 61s, keep());
  EXPECT_TRUE(verification->ended());
  EXPECT_EQ(verification->take_result(now).state, State::kExpired);

  make(Direction::kWrite);
  verification->start(ended(), now, keep());
  verification->give_up({ErrorCode::kPeerDead, "it died"});
  EXPECT_TRUE(verification->ended());
  EXPECT_EQ(verification->take_result(now).error.code, ErrorCode::kPeerDead);
}

TEST_F(Verifying, OfNothingIsDoneAtOnce) {
  from.clear();
  pages.clear();
  make(Direction::kWrite);
  EXPECT_EQ(run().state, State::kDone);
}

TEST_F(Verifying, RefusesRangesThatDoNotLieInTheRegion) {
  Verify question;
  const std::vector<PageRange> ranges{{kPage * kPages - 1, 2}};
  question.pages = pages_of(ranges, std::vector<std::uint64_t>{0});
  auto use = regions.use("source");
  EXPECT_EQ(compare_pages(**use, question).error().code, ErrorCode::kOutOfRange);
  const std::vector<PageRange> wrapping{{UINT64_MAX, 2}};
  question.pages = pages_of(wrapping, std::vector<std::uint64_t>{0});
  EXPECT_EQ(compare_pages(**use, question).error().code, ErrorCode::kOutOfRange);
}

}  // namespace
}  // namespace penstock
