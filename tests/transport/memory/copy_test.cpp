#include "transport/memory/copy.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "transport/memory/pattern.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kGiB = 1ull << 30;

std::shared_ptr<const Plan> plan_of(const std::vector<Range>& list, PlanLimits limits = {}) {
  return *Plan::make(Ranges{BlobList<Range>::of(list)}, limits);
}

class Copy : public testing::Test {
 protected:
  Copy() : source_(4096), destination_(4096, std::byte{0}) { fill_pattern(source_, 9, 0); }
  CopyProgress copy(Cursor& cursor, std::uint64_t slice_bytes) {
    return copy_slice(cursor, source_, destination_, slice_bytes, stop_);
  }

  std::vector<std::byte> source_;
  std::vector<std::byte> destination_;
  std::atomic<bool> stop_{false};
};

TEST_F(Copy, MovesShuffledPagesAndNothingElse) {
  std::vector<std::uint32_t> source(32);
  std::iota(source.begin(), source.end(), 0u);
  std::vector<std::uint32_t> destination = source;
  std::shuffle(source.begin(), source.end(), std::mt19937(1));
  std::shuffle(destination.begin(), destination.end(), std::mt19937(2));
  source.resize(20);
  destination.resize(20);
  Pages pages;
  pages.row_bytes = pages.source_stride = pages.destination_stride = 128;
  pages.source_pages = BlobList<std::uint32_t>::of(source);
  pages.destination_pages = BlobList<std::uint32_t>::of(destination);
  const auto plan = *Plan::make(pages, {});

  std::vector<std::byte> expected(4096, std::byte{0});
  for (std::size_t i = 0; i < source.size(); ++i)
    std::copy_n(source_.begin() + source[i] * 128, 128, expected.begin() + destination[i] * 128);
  Cursor cursor(*plan);
  const CopyProgress progress = copy(cursor, kAll);
  EXPECT_EQ(progress.bytes, 20u * 128);
  EXPECT_EQ(progress.chunks, plan->chunks());
  EXPECT_TRUE(cursor.done());
  EXPECT_EQ(destination_, expected);
}

TEST_F(Copy, GoesOnWhereTheSliceEnded) {
  const auto plan = plan_of({{0, 0, 4096}}, {.max_chunk_bytes = 100});
  Cursor cursor(*plan);
  std::uint64_t copied = 0;
  for (int slices = 0; !cursor.done(); ++slices) {
    ASSERT_LT(slices, 100);
    const CopyProgress progress = copy(cursor, 250);
    EXPECT_LE(progress.chunks, 3u);  // a chunk is copied whole: the third passes 250 bytes
    copied += progress.bytes;
  }
  EXPECT_EQ(copied, 4096u);
  EXPECT_EQ(destination_, source_);
}

TEST_F(Copy, OfASliceSmallerThanAChunkStillMovesTheWholeChunk) {
  const auto plan = plan_of({{0, 0, 1000}, {2000, 2000, 1000}});
  Cursor cursor(*plan);
  const CopyProgress progress = copy(cursor, 1);
  EXPECT_EQ(progress.bytes, 1000u);
  EXPECT_EQ(progress.chunks, 1u);
}

TEST_F(Copy, StoppedBeforeItStartsTouchesNothing) {
  const auto plan = plan_of({{0, 0, 4096}});
  Cursor cursor(*plan);
  stop_ = true;
  EXPECT_EQ(copy(cursor, kAll).chunks, 0u);
  EXPECT_EQ(destination_, std::vector<std::byte>(4096, std::byte{0}));
  stop_ = false;
  EXPECT_EQ(copy(cursor, kAll).bytes, 4096u);  // the cursor has not moved
}

TEST_F(Copy, OfEmptyWorkOrAnEmptySliceDoesNothing) {
  const auto empty = plan_of({});
  Cursor none(*empty);
  EXPECT_EQ(copy(none, kAll).chunks, 0u);
  const auto plan = plan_of({{0, 0, 8}});
  Cursor cursor(*plan);
  EXPECT_EQ(copy(cursor, 0).chunks, 0u);
  EXPECT_FALSE(cursor.done());
}

TEST_F(Copy, WithinOneRegionMovesAnOverlappingChunkAsByMemmove) {
  const std::vector<std::byte> before = source_;
  const auto plan = plan_of({{0, 8, 1000}});
  Cursor cursor(*plan);
  copy_slice(cursor, source_, source_, kAll, stop_);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 1000, source_.begin() + 8));
}

/// Address space without memory behind it until a page is touched.
class SparseMemory {
 public:
  explicit SparseMemory(std::uint64_t size)
      : size_(size),
        address_(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~SparseMemory() { munmap(address_, size_); }
  bool is_mapped() const { return address_ != MAP_FAILED; }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(address_), size_}; }

 private:
  std::uint64_t size_;
  void* address_;
};

TEST(SparseCopy, ReachesOffsetsAbove4GiBOnBothSides) {
  constexpr std::uint64_t kPageBytes = 64 << 10;
  const SparseMemory source(20 * kGiB);
  const SparseMemory destination(20 * kGiB);
  ASSERT_TRUE(source.is_mapped() && destination.is_mapped());
  const std::vector<Range> list = {
      {4 * kGiB - 100, 9 * kGiB + 3, kPageBytes},  // crosses 4 GiB
      {17 * kGiB, 100, kPageBytes},
      {5, 20 * kGiB - kPageBytes, kPageBytes},  // to the last byte
  };
  for (const Range& range : list)
    fill_pattern(source.bytes().subspan(range.source_offset, range.length), 3, range.source_offset);
  const auto plan = plan_of(list);
  EXPECT_EQ(plan->destination_end(), 20 * kGiB);
  Cursor cursor(*plan);
  const std::atomic<bool> stop{false};
  EXPECT_EQ(copy_slice(cursor, source.bytes(), destination.bytes(), kAll, stop).chunks, 3u);
  for (const Range& range : list)
    EXPECT_EQ(digest_page(destination.bytes().subspan(range.destination_offset, range.length)),
              digest_page(source.bytes().subspan(range.source_offset, range.length)));
  // What a 32-bit offset would have hit instead is still untouched.
  EXPECT_EQ(destination.bytes()[(9 * kGiB + 3) % (4 * kGiB)], std::byte{0});
}

}  // namespace
}  // namespace penstock
