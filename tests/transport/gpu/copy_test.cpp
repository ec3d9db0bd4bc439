// The kernel puts every byte where it belongs and touches no other, whatever the sizes and
// addresses.
#include <gmock/gmock.h>

#include "tests/transport/gpu/gpu_fixture.hpp"

namespace penstock {
namespace {

struct Way {
  bool from_gpu;
  bool to_gpu;
  int leave;  // multiprocessors
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << (way.from_gpu ? "GPU" : "host") << " to " << (way.to_gpu ? "GPU" : "host") << ", leaving "
       << way.leave;
}

class Copy : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    PENSTOCK_NEEDS_GPU();
    PageMoverOptions options;
    options.leave_multiprocessors = GetParam().leave;
    mover_ = must(PageMover::make(0, options));
  }

  /// Copies by kernel and by memcpy, and compares all bytes of the destination.
  void expect_like_memcpy(const std::vector<CopyPiece>& pieces, std::uint64_t source_bytes,
                          std::uint64_t destination_bytes) {
    Side source(GetParam().from_gpu, source_bytes);
    Side destination(GetParam().to_gpu, destination_bytes);
    const auto from = pattern(source_bytes, 1);
    auto expected = pattern(destination_bytes, 2);
    source.set(from);
    destination.set(expected);
    for (std::size_t first = 0; first < pieces.size(); first += 4000) {
      const auto part =
          std::span(pieces).subspan(first, std::min<std::size_t>(4000, pieces.size() - first));
      const auto ticket = mover_->start(part, source.place(), destination.place(), 0);
      ASSERT_TRUE(ticket) << ticket.error().message;
      const auto done = wait(*mover_, *ticket);
      ASSERT_TRUE(done) << done.error().message;
    }
    for (const CopyPiece& piece : pieces)
      std::memcpy(expected.data() + piece.destination_offset, from.data() + piece.source_offset,
                  piece.length);
    EXPECT_EQ(first_difference(destination.get(), expected), -1);
  }

  std::unique_ptr<PageMover> mover_;
};

INSTANTIATE_TEST_SUITE_P(Ways, Copy,
                         testing::Values(Way{true, true, 0}, Way{true, true, 100000},
                                         Way{true, false, 0}, Way{false, true, 0}));

TEST_P(Copy, EveryAlignmentOfEveryLength) {
  std::vector<CopyPiece> pieces;
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t length = 0; length <= 130; ++length) lengths.push_back(length);
  for (std::uint64_t length : {255, 511, 1000, 4095, 4096, 4097, 8191, 8192, 8193})
    lengths.push_back(length);
  for (const std::uint64_t length : lengths) {
    for (std::uint64_t source_shift = 0; source_shift < 16; ++source_shift) {
      for (std::uint64_t shift = 0; shift < 16; ++shift) {
        pieces.push_back({source + source_shift, destination + shift, length});
        destination += (length + 48) / 16 * 16;  // some bytes between them that must stay
      }
    }
    source += (length + 48) / 16 * 16;
  }
  expect_like_memcpy(pieces, source, destination);
}

TEST_P(Copy, LongPiecesAtOddAddresses) {
  std::vector<CopyPiece> pieces;
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
  for (const std::uint64_t length : {65535, 65536, 65537, 200'000, 1 << 20, (1 << 20) + 1}) {
    for (const auto& [source_shift, shift] :
         {std::pair(0, 0), {0, 1}, {1, 0}, {3, 3}, {5, 10}, {8, 0}, {15, 4}}) {
      pieces.push_back({source + static_cast<std::uint64_t>(source_shift),
                        destination + static_cast<std::uint64_t>(shift), length});
      source += length + 64;
      destination += length + 64;
    }
  }
  expect_like_memcpy(pieces, source, destination);
}

TEST_P(Copy, PagesOfAThousandBytesShuffled) {
  constexpr std::uint64_t kPages = 20'000;
  constexpr std::uint64_t kBytes = 1000;
  std::vector<std::uint64_t> order(kPages);
  for (std::uint64_t i = 0; i < kPages; ++i) order[i] = i;
  std::mt19937_64 random(4);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<CopyPiece> pieces;
  for (std::uint64_t i = 0; i < kPages; ++i)
    pieces.push_back({1 + order[i] * kBytes, 3 + i * kBytes, kBytes});
  expect_like_memcpy(pieces, 1 + kPages * kBytes, 3 + kPages * kBytes);
}

TEST_P(Copy, ManyCopiesOnManyLanesAtTheSameTime) {
  constexpr std::uint64_t kPage = 4096;
  constexpr std::uint64_t kCopies = 256;
  constexpr std::uint64_t kPages = 64;
  constexpr std::uint64_t kBytes = kCopies * kPages * kPage;
  Side source(GetParam().from_gpu, kBytes);
  Side destination(GetParam().to_gpu, kBytes);
  const auto from = pattern(kBytes, 3);
  auto expected = pattern(kBytes, 4);
  source.set(from);
  destination.set(expected);
  std::vector<CopyTicket> tickets;
  for (std::uint64_t copy = 0; copy < kCopies; ++copy) {
    std::vector<CopyPiece> pieces;
    for (std::uint64_t i = 0; i < kPages; ++i) {
      const std::uint64_t page = copy * kPages + i;
      pieces.push_back({page * kPage, (copy * kPages + (kPages - 1 - i)) * kPage, kPage});
    }
    for (const CopyPiece& piece : pieces)
      std::memcpy(expected.data() + piece.destination_offset, from.data() + piece.source_offset,
                  piece.length);
    for (;;) {
      const auto ticket = mover_->start(pieces, source.place(), destination.place(), copy % 4);
      if (ticket) {
        tickets.push_back(*ticket);
        break;
      }
      ASSERT_EQ(ticket.error().code, ErrorCode::kBusy) << ticket.error().message;
    }
  }
  for (const CopyTicket& ticket : tickets) must(wait(*mover_, ticket));
  EXPECT_EQ(mover_->running(), 0u);
  EXPECT_EQ(first_difference(destination.get(), expected), -1);
}

TEST(CopyInPlace, APieceThatOverlapsItselfIsMovedAsByMemmove) {
  PENSTOCK_NEEDS_GPU();
  const auto mover = must(PageMover::make(0));
  constexpr std::uint64_t kBytes = 1 << 20;
  for (const std::uint64_t length : {10ull, 600ull, 5000ull, 300'000ull}) {
    for (const std::uint64_t apart : {1ull, 16ull, 511ull, 4096ull}) {
      for (const bool forward : {false, true}) {
        Side memory(true, kBytes);
        auto expected = pattern(kBytes, 5);
        memory.set(expected);
        const CopyPiece piece{forward ? 1000 + apart : 1000, forward ? 1000 : 1000 + apart, length};
        const auto ticket =
            must(mover->start(std::span(&piece, 1), memory.place(), memory.place(), 0));
        must(wait(*mover, ticket));
        std::memmove(expected.data() + piece.destination_offset,
                     expected.data() + piece.source_offset, length);
        EXPECT_EQ(first_difference(memory.get(), expected), -1)
            << length << " bytes, " << apart << " apart";
      }
    }
  }
}

}  // namespace
}  // namespace penstock
