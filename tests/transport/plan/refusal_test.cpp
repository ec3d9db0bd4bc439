// What a plan refuses, and what it takes although it looks odd: empty work, offsets near 2^64.
#include <gmock/gmock.h>

#include <limits>

#include "tests/transport/plan/expect_plan.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t k4GiB = 1ull << 32;

void expect_empty(const Layout& layout) {
  const auto plan = plan_of(layout);
  EXPECT_EQ(plan->bytes(), 0u);
  EXPECT_EQ(plan->chunks(), 0u);
  EXPECT_EQ(plan->source_end(), 0u);
  EXPECT_EQ(plan->destination_end(), 0u);
  EXPECT_TRUE(Cursor(*plan).done());
  EXPECT_TRUE(chunks_of(*plan).empty());
}

TEST(EmptyWork, NoRangesIsAPlanOfNoChunks) { expect_empty(ranges({})); }

TEST(EmptyWork, OnlyZeroLengthRangesTouchNothingWhereverTheyPoint) {
  expect_empty(ranges({{0, 0, 0}, {kMax, kMax, 0}, {5, 6, 0}}));
}

TEST(EmptyWork, NoPagesIsAPlanOfNoChunks) {
  expect_empty(pages(4096, {}, {}));
  expect_empty(pages(0, {}, {}));
  expect_empty(Pages{});
}

TEST(EmptyWork, NoBasePairsIsAPlanOfNoChunks) {
  Pages layout = pages(4096, {1, 2}, {3, 4});
  layout.bases.clear();
  expect_empty(layout);
}

TEST(Refusal, ListsOfDifferentLengthAreNamedWithBothLengths) {
  const Error error = refusal_of(pages(4096, {1, 2, 3}, {1, 2}));
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, AllOf(HasSubstr("3 source pages"), HasSubstr("2 destination pages")));
  EXPECT_EQ(refusal_of(pages(4096, {}, {1})).code, ErrorCode::kInvalidArgument);
}

TEST(Refusal, PagesWithoutRowsOrBytes) {
  Pages layout = pages(4096, {1}, {1});
  layout.rows = 0;
  EXPECT_THAT(refusal_of(layout).message, HasSubstr("1 pages of 0 rows of 4096 bytes"));
  EXPECT_EQ(refusal_of(pages(0, {1}, {1})).code, ErrorCode::kInvalidArgument);
}

TEST(Refusal, ChunksOfZeroBytes) {
  EXPECT_EQ(refusal_of(ranges({{0, 0, 1}}), {.max_chunk_bytes = 0}).code,
            ErrorCode::kInvalidArgument);
}

TEST(Refusal, RangesPast64BitsNameTheRangeAndTheSide) {
  EXPECT_THAT(refusal_of(ranges({{0, 0, 1}, {kMax, 0, 1}})).message,
              AllOf(HasSubstr("range 1"), HasSubstr("source offset 18446744073709551615")));
  EXPECT_THAT(refusal_of(ranges({{0, kMax - 9, 10}})).message,
              AllOf(HasSubstr("range 0"), HasSubstr("destination offset")));
  EXPECT_EQ(refusal_of(ranges({{1, 1, kMax}})).code, ErrorCode::kInvalidArgument);
}

TEST(Refusal, RangesWhoseSumPasses64Bits) {
  EXPECT_THAT(refusal_of(ranges({{0, 0, kMax}, {0, 0, 1}})).message, HasSubstr("ranges 0 to 1"));
}

TEST(Refusal, EachTermOfAPageOffsetIsChecked) {
  const Pages good = pages(4096, {2, 1}, {1, 2});
  const auto expect_refused = [&](auto change) {
    Pages layout = good;
    change(layout);
    EXPECT_THAT(refusal_of(layout).message, HasSubstr("passes 2^64"));
  };
  expect_refused([](Pages& p) { p.source_stride = 1ull << 63; });
  expect_refused([](Pages& p) { p.destination_stride = 1ull << 63; });
  expect_refused([](Pages& p) { p.bases = {{0, 0}, {kMax - 8192, 0}}; });
  expect_refused([](Pages& p) { p.bases = {{0, kMax - 8192}, {0, 0}}; });
  expect_refused([](Pages& p) { p.row_bytes = kMax - 8191; });
  expect_refused([](Pages& p) {
    p.rows = 3;
    p.source_pitch = 1ull << 63;
  });
  expect_refused([](Pages& p) {
    p.rows = 2;
    p.destination_pitch = kMax - 8192;
  });
}

TEST(Refusal, PagesWhoseSumPasses64Bits) {
  Pages layout = pages(1ull << 62, {0, 0, 0, 0}, {0, 0, 0, 0});
  EXPECT_THAT(refusal_of(layout).message, HasSubstr("4 pages of 1 rows of 4611686018427387904"));
  layout = pages(1, {0}, {0});
  layout.row_bytes = 1ull << 40;
  layout.rows = 1u << 24;  // pitch 0: the same bytes again and again
  EXPECT_EQ(refusal_of(layout).code, ErrorCode::kInvalidArgument);
}

TEST(Sizes64Bit, TheLastByteBelow2To64CanBeMoved) {
  const auto plan = plan_of(ranges({{kMax - 10, kMax - 10, 10}}));
  EXPECT_EQ(plan->source_end(), kMax);
  EXPECT_THAT(chunks_of(*plan), ElementsAre(Chunk{0, kMax - 10, kMax - 10, 10}));

  Pages layout = pages(4096, {0xffffffff}, {0});
  layout.bases = {{kMax - 4096 - 0xffffffffull * 4096, kMax - 4096}};
  EXPECT_EQ(plan_of(layout)->source_end(), kMax);
  EXPECT_EQ(plan_of(layout)->destination_end(), kMax);
}

TEST(Sizes64Bit, ARangeAbove4GiBIsCutIntoWholeChunks) {
  const std::uint64_t length = 3 * k4GiB + 5;
  const auto plan =
      plan_of(ranges({{k4GiB - 1, 2 * k4GiB + 1, length}}), {.max_chunk_bytes = k4GiB});
  EXPECT_EQ(plan->bytes(), length);
  EXPECT_THAT(chunks_of(*plan), ElementsAre(Chunk{0, k4GiB - 1, 2 * k4GiB + 1, k4GiB},
                                            Chunk{1, 2 * k4GiB - 1, 3 * k4GiB + 1, k4GiB},
                                            Chunk{2, 3 * k4GiB - 1, 4 * k4GiB + 1, k4GiB},
                                            Chunk{3, 4 * k4GiB - 1, 5 * k4GiB + 1, 5}));
}

TEST(Sizes64Bit, OneChunkMayBeTheWholeAddressSpace) {
  const auto plan = plan_of(ranges({{0, 0, kMax}}), {.max_chunk_bytes = kMax});
  EXPECT_THAT(chunks_of(*plan), ElementsAre(Chunk{0, 0, 0, kMax}));
  EXPECT_EQ(plan_of(ranges({{0, 0, kMax}}), {.max_chunk_bytes = 1})->chunks(), kMax);
}

TEST(Sizes64Bit, PageIndexTimesStrideIsNotCutTo32Bits) {
  const auto plan = plan_of(pages(1 << 20, {0xffffffff, 5000}, {70'000, 0xfffffffe}));
  EXPECT_THAT(chunks_of(*plan), ElementsAre(Chunk{0, 0xffffffffull << 20, 70'000ull << 20, 1 << 20},
                                            Chunk{1, 5000ull << 20, 0xfffffffeull << 20, 1 << 20}));
}

}  // namespace
}  // namespace penstock
