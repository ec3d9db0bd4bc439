// Whole layouts: the kernel reads the request's lists and moves what the host's copy would move.
#include <gmock/gmock.h>

#include <atomic>

#include "tests/transport/gpu/gpu_fixture.hpp"
#include "transport/memory/copy.hpp"
#include "transport/plan/plan.hpp"

namespace penstock {
namespace {

class PlanCopy : public testing::Test {
 protected:
  void SetUp() override {
    PENSTOCK_NEEDS_GPU();
    mover_ = must(PageMover::make(0));
  }

  /// In slices of `slice_bytes` over the lanes in turn.
  void expect_like_host(const Layout& layout, std::uint64_t slice_bytes) {
    const auto plan = must(Plan::make(layout, {}));
    const auto from = pattern(std::max<std::uint64_t>(plan->source_end(), 1), 1);
    auto expected = pattern(plan->destination_end() + 100, 2);
    Side source(true, from.size());
    Side destination(true, expected.size());
    source.set(from);
    destination.set(expected);
    const auto prepared = must(mover_->prepare(layout));
    EXPECT_EQ(prepared->bytes(), plan->bytes());
    EXPECT_EQ(prepared->bytes(0, prepared->elements()), plan->bytes());
    std::vector<CopyTicket> tickets;
    std::uint64_t moved = 0;
    for (std::uint64_t first = 0; first < prepared->elements();) {
      const std::uint64_t count = prepared->elements_of(first, slice_bytes);
      ASSERT_GT(count, 0u);
      moved += prepared->bytes(first, count);
      const auto lane = static_cast<std::uint32_t>(tickets.size() % mover_->options().lanes);
      const auto ticket =
          mover_->start(*prepared, first, count, source.place(), destination.place(), lane);
      if (!ticket && ticket.error().code == ErrorCode::kBusy) {
        moved -= prepared->bytes(first, count);
        must(mover_->poll(tickets.back()));
        continue;
      }
      tickets.push_back(must(ticket));
      first += count;
    }
    EXPECT_EQ(moved, plan->bytes());
    for (const CopyTicket& ticket : tickets) must(wait(*mover_, ticket));
    Cursor cursor(*plan);
    const std::atomic<bool> stop{false};
    copy_slice(cursor, from, expected, UINT64_MAX, stop);
    EXPECT_EQ(first_difference(destination.get(), expected), -1);
  }

  std::vector<std::uint32_t> shuffled(std::uint32_t count) {
    std::vector<std::uint32_t> list(count);
    for (std::uint32_t i = 0; i < count; ++i) list[i] = i;
    std::shuffle(list.begin(), list.end(), random_);
    return list;
  }

  std::mt19937_64 random_{11};
  std::unique_ptr<PageMover> mover_;
};

TEST_F(PlanCopy, PagesOfManySizes) {
  for (const std::uint64_t bytes : {16, 100, 1000, 4096, 8200, 65536, 70'001}) {
    Pages pages;
    pages.row_bytes = bytes;
    pages.source_stride = bytes + 5;
    pages.destination_stride = bytes;
    pages.source_pages = BlobList<std::uint32_t>::of(shuffled(700));
    pages.destination_pages = BlobList<std::uint32_t>::of(shuffled(700));
    expect_like_host(pages, UINT64_MAX);
    expect_like_host(pages, 40 * bytes + 1);
  }
}

TEST_F(PlanCopy, RowsWithPitchesUnderManyBases) {
  Pages pages;
  pages.row_bytes = 96;
  pages.rows = 5;
  pages.source_pitch = 96 * 4;
  pages.destination_pitch = 96;
  pages.source_stride = 5 * 96 * 4;
  pages.destination_stride = 5 * 96;
  pages.source_pages = BlobList<std::uint32_t>::of(shuffled(301));
  pages.destination_pages = BlobList<std::uint32_t>::of(shuffled(301));
  pages.bases.clear();
  for (std::uint64_t layer = 0; layer < 7; ++layer)
    pages.bases.push_back(
        {layer * 301 * pages.source_stride + 3, layer * 301 * pages.destination_stride});
  expect_like_host(pages, UINT64_MAX);
  expect_like_host(pages, 10'000);
}

TEST_F(PlanCopy, AShortListIsReadInPlace) {
  Pages pages;
  pages.row_bytes = 4096;
  pages.source_stride = pages.destination_stride = 4096;
  pages.source_pages = BlobList<std::uint32_t>::of({3});
  pages.destination_pages = BlobList<std::uint32_t>::of({1});
  expect_like_host(pages, UINT64_MAX);
}

TEST_F(PlanCopy, RangesOfAllSizesWithEmptyOnes) {
  std::vector<Range> list;
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::uint64_t length = i % 7 == 0 ? 0 : random_() % (i % 50 == 1 ? 300'000 : 3000);
    list.push_back({source + random_() % 20, destination + random_() % 20, length});
    source += length + 20;
    destination += length + 20;
  }
  std::shuffle(list.begin(), list.end(), random_);
  const Ranges ranges{BlobList<Range>::of(list)};
  expect_like_host(ranges, UINT64_MAX);
  expect_like_host(ranges, 100'000);
}

TEST_F(PlanCopy, EmptyWorkIsDone) {
  for (const Layout& layout : {Layout(Ranges{}), Layout(Pages{})}) {
    const auto plan = must(mover_->prepare(layout));
    EXPECT_EQ(plan->elements(), 0u);
    EXPECT_EQ(plan->bytes(), 0u);
    must(wait(*mover_, must(mover_->start(*plan, 0, 0, {}, {}, 0))));
    EXPECT_FALSE(mover_->start(*plan, 0, 1, {}, {}, 0));
  }
}

TEST_F(PlanCopy, ElementNumbersBeyondThirtyTwoBits) {
  // Rows lie one on another but for the last dimension, so that 2^33 of them need no memory.
  Pages pages;
  pages.row_bytes = 16;
  pages.rows = 1 << 16;
  pages.source_pitch = 16;
  pages.destination_pitch = 32;
  pages.source_pages = BlobList<std::uint32_t>::of(std::vector<std::uint32_t>(1 << 10, 0));
  pages.destination_pages = pages.source_pages;
  pages.bases.assign(1 << 7, {0, 0});
  pages.bases.back() = {8, 16};
  const std::uint64_t source_bytes = (1 << 16) * 16 + 16;
  const std::uint64_t destination_bytes = (1 << 16) * 32 + 16;
  const auto from = pattern(source_bytes, 1);
  auto expected = pattern(destination_bytes, 2);
  Side source(true, source_bytes);
  Side destination(true, destination_bytes);
  source.set(from);
  destination.set(expected);
  const auto plan = must(mover_->prepare(pages));
  ASSERT_EQ(plan->elements(), std::uint64_t{1} << 33);
  const std::uint64_t first = plan->elements() - 3000;
  must(wait(*mover_,
            must(mover_->start(*plan, first, 3000, source.place(), destination.place(), 0))));
  for (std::uint64_t row = (1 << 16) - 3000; row < 1 << 16; ++row)
    std::memcpy(expected.data() + 16 + row * 32, from.data() + 8 + row * 16, 16);
  EXPECT_EQ(first_difference(destination.get(), expected), -1);
  const auto too_many =
      mover_->start(*plan, 0, plan->elements(), source.place(), destination.place(), 0);
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(PlanCopy, AnotherMoversPlanIsRefused) {
  const auto other = must(PageMover::make(0));
  const auto plan = must(other->prepare(Pages{}));
  const auto started = mover_->start(*plan, 0, 0, {}, {}, 0);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock
