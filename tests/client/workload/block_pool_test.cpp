#include "client/workload/block_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

namespace penstock::workload {
namespace {

using testing::ElementsAre;

std::vector<std::uint32_t> in_order(std::uint32_t count) {
  std::vector<std::uint32_t> pages;
  for (std::uint32_t i = 0; i < count; ++i) pages.push_back(i);
  return pages;
}

constexpr BlockKey kA{1, 2}, kB{2, 2}, kC{3, 2};

TEST(BlockPool, HandsOutPagesInTheGivenOrder) {
  BlockPool pool({5, 3, 9, 1});
  EXPECT_THAT(pool.pin({kA}), ElementsAre(kA));
  EXPECT_THAT(pool.pages_of(kA), ElementsAre(5u, 3u));
  EXPECT_EQ(pool.free_pages(), 2u);
}

TEST(BlockPool, HeldBlockIsNotMissing) {
  BlockPool pool(in_order(4));
  pool.pin({kA});
  pool.unpin({kA});
  EXPECT_THAT(pool.pin({kB, kA}), ElementsAre(kB));
}

TEST(BlockPool, LeastRecentlyUsedLeaves) {
  BlockPool pool(in_order(4));
  pool.pin({kA});
  pool.unpin({kA});
  pool.pin({kB});
  pool.unpin({kB});
  pool.pin({kA});  // used again: kB is the oldest now
  pool.unpin({kA});
  pool.pin({kC});
  EXPECT_TRUE(pool.holds(kA));
  EXPECT_FALSE(pool.holds(kB));
  EXPECT_EQ(pool.evicted_blocks(), 1u);
}

TEST(BlockPool, EndOfAPromptLeavesBeforeItsBeginning) {
  BlockPool pool(in_order(4));
  pool.pin({kA, kB});
  pool.unpin({kA, kB});
  pool.pin({kC});
  EXPECT_TRUE(pool.holds(kA));
  EXPECT_FALSE(pool.holds(kB));
}

TEST(BlockPool, PinnedBlocksStay) {
  BlockPool pool(in_order(4));
  pool.pin({kA});
  pool.pin({kB});
  EXPECT_FALSE(pool.can_pin({kC}));
  pool.pin({kA});
  pool.unpin({kA});
  EXPECT_FALSE(pool.can_pin({kC})) << "kA is still pinned once";
  pool.unpin({kA});
  EXPECT_TRUE(pool.can_pin({kC}));
  // But kA itself must not count as room for its own companion.
  EXPECT_FALSE(pool.can_pin({kA, kC}));
}

TEST(BlockPool, ShorterBlockOfTheSameIdIsAnother) {
  BlockPool pool(in_order(4));
  pool.pin({BlockKey{1, 1}});
  EXPECT_FALSE(pool.holds(kA));
  EXPECT_THAT(pool.pin({kA}), ElementsAre(kA));
}

// Every page is free or in exactly one block; pinned blocks keep their pages; the pool evicts no
// more than it must.
TEST(BlockPool, KeepsItsInvariantsUnderRandomUse) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    constexpr std::uint32_t kPages = 60;
    BlockPool pool(shuffled_pages(kPages, seed));
    std::set<std::uint64_t> known;
    std::deque<std::vector<BlockKey>> pinned;
    std::map<std::uint64_t, std::vector<std::uint32_t>> pinned_pages;
    auto key_of = [](std::uint64_t id) {
      return BlockKey{id, static_cast<std::uint32_t>(1 + id % 5)};
    };
    for (int step = 0; step < 2000; ++step) {
      std::set<std::uint64_t> ids;
      for (auto n = random() % 6; n > 0; --n) ids.insert(random() % 40);
      std::vector<BlockKey> blocks;
      for (auto id : ids) blocks.push_back(key_of(id));
      if (random() % 2 == 0 && pool.can_pin(blocks)) {
        auto before = pool.block_count() + pool.evicted_blocks();
        auto missing = pool.pin(blocks);
        EXPECT_EQ(pool.block_count() + pool.evicted_blocks(), before + missing.size());
        pinned.push_back(blocks);
        for (const auto& block : blocks) {
          auto [place, is_new] = pinned_pages.emplace(block.id, pool.pages_of(block));
          EXPECT_EQ(place->second, pool.pages_of(block)) << "a pinned block moved";
          EXPECT_EQ(place->second.size(), block.pages);
        }
        known.insert(ids.begin(), ids.end());
      } else if (!pinned.empty()) {
        pool.unpin(pinned.front());
        pinned.pop_front();
        pinned_pages.clear();
        for (const auto& list : pinned) {
          for (const auto& block : list) pinned_pages[block.id] = pool.pages_of(block);
        }
      }
      std::set<std::uint32_t> held;
      std::size_t held_count = 0;
      for (auto id : known) {
        if (!pool.holds(key_of(id))) {
          ASSERT_FALSE(pinned_pages.contains(id)) << "a pinned block left";
          continue;
        }
        const auto& pages = pool.pages_of(key_of(id));
        held.insert(pages.begin(), pages.end());
        held_count += pages.size();
      }
      ASSERT_EQ(held.size(), held_count) << "a page is in two blocks";
      ASSERT_EQ(held_count + pool.free_pages(), kPages);
      ASSERT_TRUE(held.empty() || *held.rbegin() < kPages);
    }
    EXPECT_GT(pool.evicted_blocks(), 0u);
  }
}

TEST(ShuffledPages, ArePermutedBySeed) {
  auto pages = shuffled_pages(100, 7);
  EXPECT_NE(pages, in_order(100));
  EXPECT_EQ(pages, shuffled_pages(100, 7));
  EXPECT_NE(pages, shuffled_pages(100, 8));
  std::sort(pages.begin(), pages.end());
  EXPECT_EQ(pages, in_order(100));
  EXPECT_TRUE(shuffled_pages(0, 1).empty());
}

}  // namespace
}  // namespace penstock::workload
