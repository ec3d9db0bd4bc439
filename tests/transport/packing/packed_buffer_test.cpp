#include "transport/packing/packed_buffer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace penstock {
namespace {

std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::span<const std::byte> part(const std::vector<std::byte>& bytes, std::size_t at,
                                std::size_t size) {
  return std::span(bytes).subspan(at, size);
}

void put(std::span<std::byte> slot, std::size_t at, std::uint64_t value) {
  std::memcpy(slot.data() + at, &value, sizeof value);
}

TEST(PackedBuffer, EveryPageArrivesAtItsPlace) {
  const auto source = random_bytes(64 * 1000, 1);
  std::vector<std::byte> slot(32 * 1024);
  std::vector<std::byte> region(64 * 1000);
  PackedWriter writer(slot);
  std::vector<std::size_t> pages;
  for (std::size_t page = 0; writer.fits(1000); ++page) {
    writer.add((63 - page) * 1000, part(source, page * 1000, 1000));
    pages.push_back(page);
  }
  const std::uint64_t wire = writer.finish();
  ASSERT_LE(wire, slot.size());
  // Only what crosses may be looked at.
  std::vector<std::byte> arrived(slot.begin(), slot.begin() + static_cast<std::ptrdiff_t>(wire));
  const auto copied = unpack(arrived, region);
  ASSERT_TRUE(copied) << copied.error().message;
  EXPECT_EQ(*copied, pages.size() * 1000);
  EXPECT_GT(pages.size(), 30u);
  for (const std::size_t page : pages)
    EXPECT_TRUE(
        std::ranges::equal(part(source, page * 1000, 1000), part(region, (63 - page) * 1000, 1000)))
        << page;
}

TEST(PackedBuffer, PagesOfAnyLengthAndAFullSlot) {
  const auto source = random_bytes(8192, 2);
  std::vector<std::byte> slot(4096);
  std::vector<std::byte> region(8192);
  PackedWriter writer(slot);
  std::mt19937_64 random(3);
  std::uint64_t at = 0;
  while (true) {
    const std::uint64_t bytes = 1 + random() % 97;
    if (!writer.fits(bytes)) break;
    writer.add(at, part(source, at, bytes));
    at += bytes;
  }
  // To the last byte: what remains takes one page more.
  for (std::uint64_t bytes = 97; bytes > 0; --bytes)
    if (writer.fits(bytes)) {
      writer.add(at, part(source, at, bytes));
      at += bytes;
    }
  EXPECT_FALSE(writer.fits(1));
  const std::uint64_t wire = writer.finish();
  ASSERT_LE(wire, slot.size());
  ASSERT_EQ(unpack(std::span(slot).first(wire), region).value(), at);
  EXPECT_TRUE(std::ranges::equal(part(source, 0, at), part(region, 0, at)));
}

TEST(PackedBuffer, AnEmptySlotIsFine) {
  std::vector<std::byte> slot(256);
  std::vector<std::byte> region(16);
  PackedWriter writer(slot);
  const auto wire = writer.finish();
  EXPECT_EQ(unpack(std::span(slot).first(wire), region).value(), 0u);
}

class BrokenSlot : public testing::Test {
 protected:
  BrokenSlot() : slot(4096), region(4096) {
    const auto page = random_bytes(512, 4);
    PackedWriter writer(slot);
    for (std::uint64_t i = 0; i < 4; ++i) writer.add(i * 512, page);
    slot.resize(writer.finish());
    index = slot.size() - 4 * kPackedEntryBytes;
  }
  std::vector<std::byte> slot;
  std::vector<std::byte> region;
  std::size_t index = 0;
};

TEST_F(BrokenSlot, WithoutItsMarkIsRefused) {
  put(slot, 0, 1);
  EXPECT_EQ(unpack(slot, region).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(BrokenSlot, WithMoreEntriesThanFitIsRefused) {
  for (const std::uint64_t entries : {5ul, 1ul << 60, ~0ul}) {
    put(slot, 8, entries);
    EXPECT_EQ(unpack(slot, region).error().code, ErrorCode::kInvalidArgument) << entries;
  }
}

TEST_F(BrokenSlot, WithAnIndexOutsideIsRefused) {
  for (const std::uint64_t at : {0ul, 31ul, static_cast<std::uint64_t>(slot.size()) + 1, ~0ul}) {
    put(slot, 16, at);
    EXPECT_EQ(unpack(slot, region).error().code, ErrorCode::kInvalidArgument) << at;
  }
}

TEST_F(BrokenSlot, WithPagesBeyondTheRegionIsRefused) {
  for (const std::uint64_t to : {4096ul - 511, 4097ul, ~0ul, ~0ul - 100}) {
    put(slot, index, to);
    EXPECT_EQ(unpack(slot, region).error().code, ErrorCode::kOutOfRange) << to;
  }
}

TEST_F(BrokenSlot, WithPagesLongerThanThePayloadIsRefused) {
  for (const std::uint64_t bytes : {513ul, 4096ul, ~0ul}) {
    put(slot, index + 8, bytes);
    EXPECT_FALSE(unpack(slot, region)) << bytes;
  }
}

TEST_F(BrokenSlot, CutShortAnywhereNeverReadsPastItsEnd) {
  for (std::size_t size = 0; size < slot.size(); ++size) {
    const std::vector<std::byte> cut(slot.begin(),
                                     slot.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(unpack(cut, region)) << size;
  }
}

TEST_F(BrokenSlot, WithRandomBytesNeverWritesOutside) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20'000; ++round) {
    auto broken = slot;
    for (int i = 0; i < 3; ++i) broken[random() % broken.size()] = static_cast<std::byte>(random());
    (void)unpack(broken, region);  // AddressSanitizer watches
  }
}

}  // namespace
}  // namespace penstock
