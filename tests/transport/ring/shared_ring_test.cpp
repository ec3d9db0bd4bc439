// Messages between two sides that share memory, and what a side that lies can do.
#include "transport/ring/shared_ring.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <numeric>
#include <random>
#include <string>
#include <thread>

namespace penstock {
namespace {

constexpr std::size_t kBytes = kLeastRingBytes;
constexpr int kPatienceMs = 20'000;  // only a failing test waits so long

std::vector<std::byte> message_of(std::uint64_t seed, std::size_t size) {
  std::vector<std::byte> message(size);
  for (std::size_t i = 0; i < size; ++i)
    message[i] = static_cast<std::byte>((seed * 31 + i * 7) & 0xff);
  return message;
}

std::size_t size_of(std::uint64_t i) { return (i * 2654435761u) % (longest_in_ring(kBytes) + 1); }

class SharedRing : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = RingSegment::make(kBytes);
    ASSERT_TRUE(made);
    segment_.emplace(std::move(made->first));
    fd_ = std::move(made->second);
  }
  RingHeader& header() { return segment_->header(); }
  RingWriter writer() { return {header().requests, segment_->requests()}; }
  RingReader reader() { return {header().requests, segment_->requests()}; }
  /// What a client that lies writes.
  void put(std::size_t at, std::uint32_t length, std::uint32_t kind) {
    std::memcpy(segment_->requests().data() + at, &length, 4);
    std::memcpy(segment_->requests().data() + at + 4, &kind, 4);
  }
  RingResult read(RingReader& from) {
    RingRecord kind{};
    return from.read(kind, payload_);
  }

  std::optional<RingSegment> segment_;
  RingDescriptor fd_;
  std::vector<std::byte> payload_;
};

TEST_F(SharedRing, GivesMessagesOfAnyLengthInTheirOrder) {
  auto out = writer();
  auto in = reader();
  RingRecord kind{};
  for (std::uint64_t i = 0; i < 5000; ++i) {  // many times around
    ASSERT_EQ(out.write(RingRecord::kMessage, message_of(i, size_of(i))), RingResult::kDone);
    ASSERT_EQ(in.read(kind, payload_), RingResult::kDone);
    ASSERT_EQ(kind, RingRecord::kMessage);
    ASSERT_EQ(payload_, message_of(i, size_of(i)));
  }
  EXPECT_EQ(in.read(kind, payload_), RingResult::kNotNow);
  EXPECT_TRUE(in.empty());
}

TEST_F(SharedRing, IsFullWhenItIsFullAndLosesNothing) {
  auto out = writer();
  auto in = reader();
  std::uint64_t written = 0;
  while (out.write(RingRecord::kMessage, message_of(written, 100)) == RingResult::kDone) ++written;
  EXPECT_EQ(written, kBytes / ring_bytes_of(100));
  for (std::uint64_t i = 0; i < written; ++i) {
    ASSERT_EQ(read(in), RingResult::kDone);
    ASSERT_EQ(payload_, message_of(i, 100));
  }
  EXPECT_EQ(out.write(RingRecord::kMessage, message_of(written, 100)), RingResult::kDone);
}

TEST_F(SharedRing, RingsOnlyForAReaderThatSleeps) {
  auto out = writer();
  auto in = reader();
  ASSERT_EQ(out.write(RingRecord::kMessage, {}), RingResult::kDone);
  EXPECT_FALSE(out.must_ring());
  EXPECT_FALSE(in.sleep()) << "there is a message";
  EXPECT_FALSE(out.must_ring()) << "it did not sleep";
  ASSERT_EQ(read(in), RingResult::kDone);
  EXPECT_TRUE(in.sleep());
  ASSERT_EQ(out.write(RingRecord::kMessage, {}), RingResult::kDone);
  EXPECT_TRUE(out.must_ring());
  EXPECT_FALSE(out.must_ring()) << "once is enough";
}

TEST_F(SharedRing, ABellRingsAndTellsThatItsOtherSideIsGone) {
  auto bells = RingBell::make();
  ASSERT_TRUE(bells);
  EXPECT_TRUE(bells->second.quiet());
  for (int i = 0; i < 100'000; ++i) bells->first.ring();  // full: nobody waits for room
  pollfd watched{bells->second.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&watched, 1, 0), 1);
  { const auto gone = std::move(bells->first); }
  for (int i = 0; i < 100'000 && bells->second.quiet(); ++i) {
  }
  EXPECT_FALSE(bells->second.quiet());
}

TEST_F(SharedRing, NobodyCanTakeItsPagesAway) {
  EXPECT_NE(::ftruncate(fd_.get(), 0), 0);
  EXPECT_NE(::ftruncate(fd_.get(), 1 << 20), 0);
}

TEST_F(SharedRing, OpensOnlyWhatItKnows) {
  EXPECT_TRUE(RingSegment::open(fd_.get()));
  header().version = 2;
  EXPECT_FALSE(RingSegment::open(fd_.get()));
  header().version = kRingVersion;
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{kBytes - 1}, 2ul * kBytes,
                                    std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    header().ring_bytes = bytes;
    EXPECT_FALSE(RingSegment::open(fd_.get())) << bytes;
  }
  const RingDescriptor empty(::memfd_create("empty", MFD_CLOEXEC));
  EXPECT_FALSE(RingSegment::open(empty.get()));
  EXPECT_FALSE(RingSegment::open(-1));
}

// -- a side that lies ----------------------------------------------------------------------------

TEST_F(SharedRing, AWriterThatLiesAboutItsIndexBreaksTheRing) {
  for (const std::uint64_t head :
       {std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{kBytes + 1}, ~std::uint64_t{0}}) {
    auto in = reader();
    header().requests.head = head;
    EXPECT_EQ(read(in), RingResult::kBroken) << head;
  }
}

TEST_F(SharedRing, AWriterThatLiesAboutALengthBreaksTheRing) {
  header().requests.head = 64;
  for (const std::uint32_t length : {57u, 64u, std::uint32_t{kBytes}, 0x7fffffffu, ~0u, ~0u - 7}) {
    auto in = reader();
    put(0, length, 1);
    EXPECT_EQ(read(in), RingResult::kBroken) << length;
  }
}

TEST_F(SharedRing, AWriterThatLiesAboutAKindBreaksTheRing) {
  header().requests.head = 64;
  for (const std::uint32_t kind : {0u, 2u, 3u, ~0u}) {  // 2: of eight bytes
    auto in = reader();
    put(0, 16, kind);
    EXPECT_EQ(read(in), RingResult::kBroken) << kind;
  }
}

TEST_F(SharedRing, AReaderThatLiesAboutItsIndexBreaksTheRing) {
  auto out = writer();
  ASSERT_EQ(out.write(RingRecord::kMessage, message_of(1, 8)), RingResult::kDone);
  for (const std::uint64_t tail : {std::uint64_t{17}, 2ul * kBytes, ~std::uint64_t{kBytes}}) {
    header().requests.tail = tail;
    EXPECT_EQ(out.write(RingRecord::kMessage, message_of(1, 8)), RingResult::kBroken) << tail;
  }
}

TEST_F(SharedRing, WhateverIsWrittenOverTheMemoryIsSurvived) {
  std::mt19937_64 random(7);
  auto* words = static_cast<std::uint64_t*>(static_cast<void*>(segment_->requests().data()));
  for (int round = 0; round < 20'000; ++round) {
    auto in = reader();
    for (std::size_t i = 0; i < 64; ++i)  // small numbers are taken for lengths and kinds
      words[i] = random() & (random() % 2 ? 0x00000003'000000ff : ~std::uint64_t{0});
    header().requests.head = random() % 2 ? random() % (2 * kBytes) : random();
    header().requests.tail = random();
    for (int reads = 0; reads < 100 && read(in) == RingResult::kDone; ++reads)
      ASSERT_LE(payload_.size(), longest_in_ring(kBytes));
  }
}

// -- two sides at once ---------------------------------------------------------------------------

/// Writes `count` messages, sleeping and ringing as a client does.
void write_all(RingWriter out, const RingBell& bell, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count;) {
    if (out.write(RingRecord::kMessage, message_of(i, size_of(i) % 300)) == RingResult::kDone) {
      ++i;
      if (out.must_ring()) bell.ring();
    } else {
      std::this_thread::yield();
    }
  }
}

/// Reads them, asleep whenever there is nothing. The number of the first that is not as it was
/// written, `count` when all are.
std::uint64_t read_all(RingReader in, const RingBell& bell, std::uint64_t count) {
  std::vector<std::byte> payload;
  RingRecord kind{};
  for (std::uint64_t i = 0; i < count;) {
    const RingResult result = in.read(kind, payload);
    if (result == RingResult::kBroken) return i;
    if (result == RingResult::kDone) {
      if (payload != message_of(i, size_of(i) % 300)) return i;
      ++i;
      continue;
    }
    if (!in.sleep()) continue;
    pollfd watched{bell.fd(), POLLIN, 0};
    if (::poll(&watched, 1, kPatienceMs) != 1) return i;  // nobody rang
    in.awake();
    if (!bell.quiet()) return i;
  }
  return count;
}

TEST_F(SharedRing, TwoThreadsThatSleepAndRingLoseNothing) {
  auto bells = RingBell::make();
  ASSERT_TRUE(bells);
  constexpr std::uint64_t kCount = 30'000;
  std::thread other([&] { write_all(writer(), bells->first, kCount); });
  EXPECT_EQ(read_all(reader(), bells->second, kCount), kCount);
  other.join();
}

TEST_F(SharedRing, TwoProcessesThatSleepAndRingLoseNothing) {
  auto bells = RingBell::make();
  ASSERT_TRUE(bells);
  constexpr std::uint64_t kCount = 30'000;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto mapped = RingSegment::open(fd_.get());
    if (!mapped) ::_exit(1);
    write_all({mapped->header().requests, mapped->requests()}, bells->first, kCount);
    ::_exit(0);
  }
  { const auto ours = std::move(bells->first); }  // the child's alone
  EXPECT_EQ(read_all(reader(), bells->second, kCount), kCount);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(bells->second.quiet()) << "its end is seen";
}

}  // namespace
}  // namespace penstock
