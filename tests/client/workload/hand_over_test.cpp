#include "client/workload/hand_over.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::workload {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two pages to a block.
KvGeometry small_geometry() {
  return {.layers = 2, .tensors = 2, .kv_heads = 1, .head_size = 8, .page_tokens = 256};
}

HandOverPlanner planner(std::uint32_t prefill_pages, std::uint32_t decoder_pages) {
  std::vector<std::uint32_t> prefill, decoder;
  for (std::uint32_t i = 0; i < prefill_pages; ++i) prefill.push_back(i);
  for (std::uint32_t i = 0; i < decoder_pages; ++i) decoder.push_back(100 + i);
  return {small_geometry(), BlockPool(prefill), BlockPool(decoder)};
}

TraceRequest request(std::uint64_t tokens, std::vector<std::uint64_t> blocks) {
  return {.line = 1, .input_tokens = tokens, .blocks = std::move(blocks)};
}

TEST(HandOver, MovesOnlyBlocksThatTheDecoderLacks) {
  auto plans = planner(10, 10);
  auto first = plans.plan(request(1024, {7, 8}));
  ASSERT_TRUE(first);
  EXPECT_THAT(first->source_pages, ElementsAre(0u, 1u, 2u, 3u));
  EXPECT_THAT(first->destination_pages, ElementsAre(100u, 101u, 102u, 103u));
  EXPECT_EQ(first->decoder_hits(), 0u);
  plans.landed(*first);
  plans.finish(*first);

  auto second = plans.plan(request(1024, {7, 9}));
  ASSERT_TRUE(second);
  EXPECT_THAT(second->moved, ElementsAre(BlockKey{9, 2}));
  EXPECT_THAT(second->source_pages, ElementsAre(4u, 5u));
  EXPECT_EQ(second->decoder_hits(), 1u);
  EXPECT_EQ(second->prefill_hits, 1u);
  EXPECT_THAT(second->waits_for, IsEmpty());
}

TEST(HandOver, LastBlockMovesOnlyThePagesThatHoldTokens) {
  auto plans = planner(10, 10);
  auto plan = plans.plan(request(513, {7, 8}));
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->moved, ElementsAre(BlockKey{7, 2}, BlockKey{8, 1}));
  EXPECT_EQ(plan->source_pages.size(), 3u);
  EXPECT_EQ(plan->block_of(1), (BlockKey{7, 2}));
  EXPECT_EQ(plan->block_of(2), (BlockKey{8, 1}));
  EXPECT_THROW(plan->block_of(3), std::out_of_range);
}

TEST(HandOver, EmptyPromptMovesNothing) {
  auto plans = planner(10, 10);
  auto plan = plans.plan(request(0, {}));
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->source_pages, IsEmpty());
}

TEST(HandOver, WaitsForBlocksThatAnotherIsBringing) {
  auto plans = planner(10, 10);
  auto first = plans.plan(request(1024, {7, 8}));
  auto second = plans.plan(request(1536, {7, 8, 9}));
  ASSERT_TRUE(first && second);
  EXPECT_THAT(second->waits_for, ElementsAre(first->id));
  EXPECT_THAT(second->moved, ElementsAre(BlockKey{9, 2}));
  plans.landed(*first);
  auto third = plans.plan(request(1024, {7, 8}));
  ASSERT_TRUE(third);
  EXPECT_THAT(third->waits_for, IsEmpty());
}

TEST(HandOver, WaitsForRoomInEitherPool) {
  for (auto [prefill, decoder] : {std::pair{4U, 10U}, std::pair{10U, 4U}}) {
    auto plans = planner(prefill, decoder);
    auto first = plans.plan(request(1024, {7, 8}));
    ASSERT_TRUE(first);
    EXPECT_FALSE(plans.plan(request(512, {9})));
    EXPECT_FALSE(plans.prefill().holds({9, 2})) << "a refused plan must change nothing";
    EXPECT_FALSE(plans.decoder().holds({9, 2}));
    plans.finish(*first);
    EXPECT_TRUE(plans.plan(request(512, {9})));
  }
}

TEST(HandOver, PagesInUseAreGivenToNobody) {
  auto plans = planner(6, 6);
  auto first = plans.plan(request(1024, {1, 2}));
  auto second = plans.plan(request(512, {3}));
  ASSERT_TRUE(first && second);
  for (auto page : second->destination_pages) {
    EXPECT_EQ(std::count(first->destination_pages.begin(), first->destination_pages.end(), page),
              0);
  }
}

TEST(HandOver, RequestLargerThanThePoolIsNamed) {
  auto plans = planner(10, 4);
  EXPECT_NO_THROW(plans.check_fits(request(1024, {1, 2})));
  try {
    plans.check_fits(request(1025, {1, 2, 3}));
    FAIL();
  } catch (const PoolTooSmall& error) {
    EXPECT_THAT(error.what(), HasSubstr("line 1 has 1025 tokens: 5 pages"));
    EXPECT_THAT(error.what(), HasSubstr("the smaller pool has 4 pages"));
  }
}

}  // namespace
}  // namespace penstock::workload
