// Chunks that are neighbours at the remote side only: one operation, several pieces of our memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/transport/poller/rig.hpp"

namespace penstock {
namespace {

using test::Rig;

/// Pages shuffled at the source, in a row at the destination; or the other way round.
std::shared_ptr<const Plan> one_sided_plan(std::uint32_t pages, bool row_at_destination,
                                           PlanLimits limits = {}) {
  std::vector<std::uint32_t> row(pages);
  for (std::uint32_t i = 0; i < pages; ++i) row[i] = i;
  auto shuffled = row;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(7));
  // No two in a row, or they would be neighbours on both sides.
  for (std::uint32_t i = 0; i < pages; ++i) shuffled[i] = shuffled[i] * 2 % Rig::kPages;
  Pages layout;
  layout.row_bytes = layout.source_stride = layout.destination_stride = Rig::kPageBytes;
  layout.source_pages = BlobList<std::uint32_t>::of(row_at_destination ? shuffled : row);
  layout.destination_pages = BlobList<std::uint32_t>::of(row_at_destination ? row : shuffled);
  return Plan::make(layout, limits).value();
}

sim::SimNicOptions gathers(std::size_t pieces = 4) {
  sim::SimNicOptions options;
  options.local_pieces = pieces;
  options.depth_per_peer = 1000;
  return options;
}

class PollerPieces : public testing::Test {
 protected:
  const TransferIdle run(Rig& rig, StartTransfer start) {
    const auto bytes = start.plan->bytes();
    const TransferId id = start.transfer;
    rig.loop->execute(std::move(start));
    rig.loop->execute(Grant{id, bytes});
    rig.run();
    auto idle = rig.take<TransferIdle>();
    EXPECT_EQ(idle.size(), 1u);
    return idle.empty() ? TransferIdle{} : idle.back();
  }
};

TEST_F(PollerPieces, FourPagesGoInOneWriteWhereTheDestinationIsARow) {
  Rig rig(1, 1, gathers());
  auto& peer = rig.add_peer();
  const auto plan = one_sided_plan(200, true);
  const auto idle = run(rig, rig.start(1, peer, plan));
  EXPECT_TRUE(idle.complete);
  EXPECT_EQ(idle.completed_bytes, plan->bytes());
  EXPECT_EQ(rig.cards[0]->posts(), 50u);
  EXPECT_EQ(idle.shares[0].writes, 50u);
  EXPECT_TRUE(rig.arrived(*plan, peer));
}

TEST_F(PollerPieces, ReadsScatterIntoOurMemory) {
  Rig rig(2, 1, gathers());
  auto& peer = rig.add_peer();
  for (std::size_t i = 0; i < peer.memory.size(); ++i) peer.memory[i] = std::byte(i * 31 >> 3);
  const auto plan = one_sided_plan(200, false);
  StartTransfer start = rig.start(1, peer, plan);
  start.direction = Direction::kRead;
  EXPECT_TRUE(run(rig, std::move(start)).complete);
  EXPECT_EQ(rig.cards[0]->posts(), 50u);
  Cursor cursor(*plan);
  for (Chunk chunk; cursor.next(chunk);)
    ASSERT_TRUE(std::ranges::equal(
        std::span(peer.memory).subspan(chunk.source_offset, chunk.length),
        rig.local_memory->bytes().subspan(chunk.destination_offset, chunk.length)));
}

TEST_F(PollerPieces, ARowAtOurSideOnlyIsWrittenPageByPage) {
  Rig rig(3, 1, gathers());
  auto& peer = rig.add_peer();
  const auto plan = one_sided_plan(100, false);
  EXPECT_TRUE(run(rig, rig.start(1, peer, plan)).complete);
  EXPECT_EQ(rig.cards[0]->posts(), 100u);
}

TEST_F(PollerPieces, TheLongestChunkBoundsThemAndTheWeakestCardDecides) {
  {
    Rig rig(4, 1, gathers());
    auto& peer = rig.add_peer();
    EXPECT_TRUE(
        run(rig, rig.start(1, peer, one_sided_plan(100, true, {2 * Rig::kPageBytes}))).complete);
    EXPECT_EQ(rig.cards[0]->posts(), 50u);
  }
  Rig rig(5, 1, gathers(1));
  auto& peer = rig.add_peer();
  EXPECT_TRUE(run(rig, rig.start(1, peer, one_sided_plan(100, true))).complete);
  EXPECT_EQ(rig.cards[0]->posts(), 100u);
}

TEST_F(PollerPieces, CountedChunksAndThoseNotToBeMergedStayAlone) {
  Rig rig(6, 1, gathers());
  auto& peer = rig.add_peer();
  StartTransfer counted = rig.start(1, peer, one_sided_plan(40, true));
  counted.immediate = 9;
  EXPECT_TRUE(run(rig, std::move(counted)).complete);
  EXPECT_EQ(rig.cards[0]->posts(), 40u);
  EXPECT_TRUE(run(rig, rig.start(2, peer, one_sided_plan(40, true, {1 << 20, false}))).complete);
  EXPECT_EQ(rig.cards[0]->posts(), 80u);
}

TEST_F(PollerPieces, AFailedOneIsDueAgainWithAllItsPages) {
  Rig rig(7, 1, gathers());
  auto& peer = rig.add_peer();
  const auto plan = one_sided_plan(200, true);
  rig.cards[0]->fail_next(3);
  const auto idle = run(rig, rig.start(1, peer, plan));
  EXPECT_FALSE(idle.complete);
  rig.loop->execute(ResumeTransfer{1, peer.paths});
  rig.loop->execute(Grant{1, plan->bytes()});
  rig.run();
  const auto resumed = rig.take<TransferIdle>();
  ASSERT_FALSE(resumed.empty());
  EXPECT_TRUE(resumed.back().complete);
  EXPECT_EQ(resumed.back().completed_bytes, plan->bytes());
  EXPECT_TRUE(rig.arrived(*plan, peer));
}

}  // namespace
}  // namespace penstock
