// Which neighbours become one chunk, and where chunks are cut.
#include <gmock/gmock.h>

#include <numeric>

#include "tests/transport/plan/expect_plan.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;

TEST(Merge, JoinsRangesThatAreNeighboursOnBothSides) {
  const auto plan = plan_of(ranges({{0, 100, 10}, {10, 110, 5}, {15, 115, 1}}));
  EXPECT_THAT(chunks_of(*plan), ElementsAre(Chunk{0, 0, 100, 16}));
  EXPECT_EQ(plan->bytes(), 16u);
  EXPECT_EQ(plan->source_end(), 16u);
  EXPECT_EQ(plan->destination_end(), 116u);
}

TEST(Merge, KeepsApartWhatTouchesOnOneSideOnly) {
  const auto plan = plan_of(ranges({{0, 0, 10}, {10, 20, 10}, {30, 30, 10}}));
  EXPECT_THAT(chunks_of(*plan),
              ElementsAre(Chunk{0, 0, 0, 10}, Chunk{1, 10, 20, 10}, Chunk{2, 30, 30, 10}));
}

TEST(Merge, LooksThroughZeroLengthRangesBetweenNeighbours) {
  const auto plan = plan_of(ranges({{0, 0, 10}, {999, 77, 0}, {10, 10, 10}, {5, 5, 0}}));
  EXPECT_THAT(chunks_of(*plan), ElementsAre(Chunk{0, 0, 0, 20}));
}

TEST(Merge, NeverJoinsBackwards) {
  const auto plan = plan_of(pages(8, {1, 0}, {1, 0}));
  EXPECT_THAT(chunks_of(*plan), ElementsAre(Chunk{0, 8, 8, 8}, Chunk{1, 0, 0, 8}));
}

TEST(Merge, KeepsOverlappingRangesApart) {
  const auto plan = plan_of(ranges({{0, 0, 10}, {5, 5, 10}, {5, 5, 10}}));
  EXPECT_EQ(plan->bytes(), 30u);
  EXPECT_EQ(plan->chunks(), 3u);
}

TEST(Merge, CutsALongRunAtMaxChunkBytesWhateverThePagesAre) {
  const auto plan = plan_of(pages(6, {3, 4, 5, 6}, {0, 1, 2, 3}), {.max_chunk_bytes = 10});
  EXPECT_THAT(chunks_of(*plan),
              ElementsAre(Chunk{0, 18, 0, 10}, Chunk{1, 28, 10, 10}, Chunk{2, 38, 20, 4}));
}

TEST(Merge, EndsAChunkExactlyAtTheLimit) {
  const auto plan = plan_of(pages(5, {0, 1, 2, 3}, {0, 1, 2, 3}), {.max_chunk_bytes = 10});
  EXPECT_THAT(chunks_of(*plan), ElementsAre(Chunk{0, 0, 0, 10}, Chunk{1, 10, 10, 10}));
}

TEST(Merge, SplitsARowLongerThanAChunk) {
  const auto plan = plan_of(pages(25, {2}, {0}), {.max_chunk_bytes = 10, .merge = false});
  EXPECT_THAT(chunks_of(*plan),
              ElementsAre(Chunk{0, 50, 0, 10}, Chunk{1, 60, 10, 10}, Chunk{2, 70, 20, 5}));
}

TEST(Merge, SwitchedOffKeepsEveryRowAndRangeItsOwnChunk) {
  Pages layout = pages(4, {0, 1}, {0, 1});
  layout.rows = 2;
  layout.source_pitch = layout.destination_pitch = 4;
  layout.source_stride = layout.destination_stride = 8;
  EXPECT_EQ(plan_of(layout, {.merge = false})->chunks(), 4u);
  EXPECT_EQ(chunks_of(*plan_of(layout, {.merge = false})).size(), 4u);
  EXPECT_THAT(chunks_of(*plan_of(layout)), ElementsAre(Chunk{0, 0, 0, 16}));
  EXPECT_EQ(plan_of(ranges({{0, 0, 1}, {1, 1, 1}}), {.merge = false})->chunks(), 2u);
}

TEST(Merge, JoinsTheLastRowOfAPageToTheFirstOfTheNext) {
  Pages layout = pages(4, {0, 1}, {0, 1});
  layout.rows = 2;  // rows at 0, 10 | 14, 24: only the middle two touch
  layout.source_pitch = layout.destination_pitch = 10;
  layout.source_stride = layout.destination_stride = 14;
  EXPECT_THAT(chunks_of(*plan_of(layout)),
              ElementsAre(Chunk{0, 0, 0, 4}, Chunk{1, 10, 10, 8}, Chunk{2, 24, 24, 4}));
  EXPECT_EQ(plan_of(layout)->chunks(), 3u);
}

TEST(Merge, JoinsAcrossBasePairs) {
  Pages layout = pages(8, {0, 1}, {0, 1});
  layout.bases = {{0, 100}, {16, 116}, {32, 132}, {64, 148}};
  const auto plan = plan_of(layout);
  EXPECT_THAT(chunks_of(*plan), ElementsAre(Chunk{0, 0, 100, 48}, Chunk{1, 64, 148, 16}));
  EXPECT_EQ(plan->chunks(), 2u);
}

TEST(Merge, CutsHeadSlicesRowByRow) {
  Pages layout = pages(4, {1}, {0});
  layout.rows = 3;
  layout.source_pitch = 16;
  layout.source_stride = 64;
  layout.destination_pitch = 4;  // dense on one side only
  EXPECT_THAT(chunks_of(*plan_of(layout)),
              ElementsAre(Chunk{0, 64, 0, 4}, Chunk{1, 80, 4, 4}, Chunk{2, 96, 8, 4}));
}

TEST(Merge, CountsBillionsOfRowsWithoutWalkingThem) {
  Pages layout = pages(2, {0, 9, 18}, {0, 9, 18});
  layout.rows = 4'000'000'000;
  layout.source_pitch = layout.destination_pitch = 8;
  layout.source_stride = layout.destination_stride = 1ull << 40;
  EXPECT_EQ(plan_of(layout)->chunks(), 12'000'000'000u);
  EXPECT_EQ(plan_of(layout, {.max_chunk_bytes = 1})->chunks(), 24'000'000'000u);
  layout.source_pitch = layout.destination_pitch = 2;
  EXPECT_EQ(plan_of(layout, {.max_chunk_bytes = 1u << 30})->chunks(), 3u * 8);
}

TEST(Cursor, CopiesContinueWhereTheOriginalStood) {
  const auto plan = plan_of(pages(8, {5, 6, 1, 2, 9}, {0, 1, 3, 4, 8}), {.max_chunk_bytes = 10});
  const auto all = chunks_of(*plan);
  Cursor cursor(*plan);
  Chunk chunk;
  for (std::size_t i = 0; i <= all.size(); ++i) {
    Cursor copy = cursor;
    std::vector<Chunk> rest;
    while (copy.next(chunk)) rest.push_back(chunk);
    EXPECT_EQ(rest, std::vector<Chunk>(all.begin() + i, all.end()));
    EXPECT_EQ(cursor.next(chunk), i < all.size());
  }
  EXPECT_TRUE(cursor.done());
}

TEST(Cursor, StaysAtTheEnd) {
  const auto plan = plan_of(ranges({{0, 0, 1}}));
  Cursor cursor(*plan);
  Chunk chunk;
  EXPECT_FALSE(cursor.done());
  EXPECT_TRUE(cursor.next(chunk));
  EXPECT_FALSE(cursor.next(chunk));
  EXPECT_FALSE(cursor.next(chunk));
  EXPECT_EQ(chunk.length, 1u);
}

class LongList : public testing::TestWithParam<std::uint32_t> {};

TEST_P(LongList, OfNeighboursBecomesFewChunks) {
  std::vector<std::uint32_t> indices(GetParam());
  std::iota(indices.begin(), indices.end(), 7u);
  const auto plan = plan_of(pages(64 << 10, indices, indices));
  EXPECT_EQ(plan->chunks(), (GetParam() + 15) / 16);  // 16 pages of 64 KiB fill 1 MiB
  EXPECT_EQ(chunks_of(*plan).size(), plan->chunks());
  EXPECT_EQ(plan->bytes(), std::uint64_t{GetParam()} << 16);
}

TEST_P(LongList, OfScatteredPagesOverManyLayersYieldsEachPageOnce) {
  constexpr std::uint64_t kPageBytes = 4096;
  constexpr std::size_t kLayers = 3;
  std::vector<std::uint32_t> source(GetParam());
  for (std::uint32_t i = 0; i < GetParam(); ++i) source[i] = (GetParam() - 1 - i) * 2;
  std::vector<std::uint32_t> destination(GetParam());
  std::iota(destination.begin(), destination.end(), 0u);
  Pages layout = pages(kPageBytes, source, destination);
  layout.bases.clear();
  for (std::uint64_t layer = 0; layer < kLayers; ++layer)
    layout.bases.push_back({layer << 33, layer << 32});
  const auto plan = plan_of(layout);
  EXPECT_EQ(plan->chunks(), kLayers * GetParam());
  EXPECT_EQ(chunks_of(*plan), model_of(layout, {}).chunks);
}

INSTANTIATE_TEST_SUITE_P(Pages, LongList, testing::Values(20'000u, 112'000u));

}  // namespace
}  // namespace penstock
