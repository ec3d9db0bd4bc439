// What a page mover refuses, and how it says so.
#include <gmock/gmock.h>

#include <thread>

#include "tests/transport/gpu/gpu_fixture.hpp"

namespace penstock {
namespace {

class CopyLimits : public testing::Test {
 protected:
  void SetUp() override { PENSTOCK_NEEDS_GPU(); }
};

TEST_F(CopyLimits, AnEmptyListIsACopyThatIsDone) {
  const auto mover = must(PageMover::make(0));
  const auto ticket = must(mover->start({}, {}, {}, 0));
  must(wait(*mover, ticket));
}

TEST_F(CopyLimits, ALaneTakesNoMoreThanItsDepth) {
  PageMoverOptions options;
  options.lanes = 2;
  options.depth = 2;
  const auto mover = must(PageMover::make(0, options));
  constexpr std::uint64_t kBytes = 256u << 20;
  Side source(true, kBytes);
  Side destination(false, kBytes);
  const CopyPiece all{0, 0, kBytes};  // some milliseconds over PCIe
  const auto start = [&](std::uint32_t lane) {
    return mover->start(std::span(&all, 1), source.place(), destination.place(), lane);
  };
  const auto first = start(0);
  const auto second = start(0);
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  const auto third = start(0);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kBusy);
  const auto other = start(1);
  ASSERT_TRUE(other) << "the other lane has room";
  must(wait(*mover, *second));
  EXPECT_EQ(must(mover->poll(*first)), CopyState::kDone) << "copies of a lane end in order";
  const auto again = start(0);
  ASSERT_TRUE(again);
  must(wait(*mover, *again));
  must(wait(*mover, *other));
}

TEST_F(CopyLimits, ARingOfListsIsUsedAgainAndAgain) {
  PageMoverOptions options;
  options.lanes = 1;
  options.list_bytes = 100 * sizeof(CopyPiece);
  const auto mover = must(PageMover::make(0, options));
  Side source(true, 1 << 20);
  Side destination(true, 1 << 20);
  source.set(pattern(1 << 20, 1));
  auto expected = pattern(1 << 20, 2);
  destination.set(expected);
  CopyTicket last;
  for (std::uint64_t round = 0; round < 300; ++round) {
    std::vector<CopyPiece> pieces;
    for (std::uint64_t i = 0; i < 37; ++i) pieces.push_back({(round + i) * 64, i * 64, 64});
    for (;;) {
      const auto ticket = mover->start(pieces, source.place(), destination.place(), 0);
      if (ticket) {
        last = *ticket;
        break;
      }
      ASSERT_EQ(ticket.error().code, ErrorCode::kBusy);
    }
  }
  must(wait(*mover, last));
  const auto from = pattern(1 << 20, 1);
  std::memcpy(expected.data(), from.data() + std::size_t{299} * 64, std::size_t{37} * 64);
  EXPECT_EQ(first_difference(destination.get(), expected), -1);
}

TEST_F(CopyLimits, WrongArgumentsAreSaid) {
  PageMoverOptions options;
  options.lanes = 2;
  options.list_bytes = 2 * 10 * sizeof(CopyPiece);
  const auto mover = must(PageMover::make(0, options));
  const CopyPiece piece{0, 0, 1};
  const std::vector<CopyPiece> many(11, piece);
  const auto code = [](const auto& result) {
    return result ? ErrorCode::kInternal : result.error().code;
  };
  EXPECT_EQ(code(mover->start(std::span(&piece, 1), {}, {}, 2)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(mover->start(many, {}, {}, 0)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(mover->start(std::span(&piece, 1), {0, 1000}, {}, 0)),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(mover->poll({0, 1000})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(mover->poll({7, 1})), ErrorCode::kInvalidArgument);
  options.lanes = 0;
  EXPECT_EQ(code(PageMover::make(0, options)), ErrorCode::kInvalidArgument);
}

TEST_F(CopyLimits, ListsThatDoNotFitAreRefusedAndFitOnceOthersAreGone) {
  PageMoverOptions options;
  options.plan_bytes = 64 * 1024;
  const auto mover = must(PageMover::make(0, options));
  Pages pages;
  pages.row_bytes = 16;
  pages.source_stride = pages.destination_stride = 16;
  std::vector<std::uint32_t> list(5000);  // 40 KB of lists
  pages.source_pages = BlobList<std::uint32_t>::of(list);
  pages.destination_pages = pages.source_pages;
  auto first = mover->prepare(pages);
  ASSERT_TRUE(first) << first.error().message;
  const auto second = mover->prepare(pages);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kResourceExhausted);
  must(synchronise_gpu(0));
  first->reset();
  EXPECT_TRUE(mover->prepare(pages));
}

TEST_F(CopyLimits, AMoverServesThreadsThatNeverHeardOfCuda) {
  const auto mover = must(PageMover::make(0));
  Side source(true, 1 << 20);
  Side destination(true, 1 << 20);
  const auto expected = pattern(1 << 20, 1);
  source.set(expected);
  std::thread([&] {
    const CopyPiece all{0, 0, 1 << 20};
    must(wait(*mover,
              must(mover->start(std::span(&all, 1), source.place(), destination.place(), 0))));
  }).join();
  EXPECT_EQ(first_difference(destination.get(), expected), -1);
}

}  // namespace
}  // namespace penstock
