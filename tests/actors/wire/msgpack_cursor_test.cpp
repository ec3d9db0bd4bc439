#include "actors/wire/msgpack_cursor.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <msgpack.hpp>
#include <random>
#include <string>
#include <vector>

namespace penstock {
namespace {

using Kind = MsgpackCursor::Kind;
using Packer = msgpack::packer<msgpack::sbuffer>;

std::span<const std::byte> bytes_of(const msgpack::sbuffer& buffer) {
  return {reinterpret_cast<const std::byte*>(buffer.data()), buffer.size()};
}

template <class... Bytes>
MsgpackCursor::Item first_of(Bytes... bytes) {
  const std::array<std::byte, sizeof...(Bytes)> message{static_cast<std::byte>(bytes)...};
  return MsgpackCursor(message).next();
}

TEST(MsgpackCursor, NumbersOfEveryWidth) {
  using std::uint64_t;
  for (const uint64_t number :
       {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{255}, uint64_t{256}, uint64_t{65535},
        uint64_t{65536}, uint64_t{0xffffffff}, uint64_t{0x100000000},
        std::numeric_limits<uint64_t>::max()}) {
    msgpack::sbuffer buffer;
    Packer(buffer).pack(number);
    MsgpackCursor cursor(bytes_of(buffer));
    const auto item = cursor.next();
    EXPECT_EQ(item.kind, Kind::kNumber) << number;
    EXPECT_EQ(item.number, number);
    EXPECT_TRUE(cursor.left().empty());
  }
}

TEST(MsgpackCursor, ASignedNumberCountsWhenItIsNotNegative) {
  EXPECT_EQ(first_of(0xd0, 0x7f).number, 0x7fu);
  EXPECT_EQ(first_of(0xd1, 0x01, 0x02).kind, Kind::kNumber);
  EXPECT_EQ(first_of(0xd1, 0x01, 0x02).number, 0x102u);
  EXPECT_EQ(first_of(0xd0, 0x80).kind, Kind::kOther);
  EXPECT_EQ(first_of(0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0).kind, Kind::kOther);
  EXPECT_EQ(first_of(0xff).kind, Kind::kOther);
}

TEST(MsgpackCursor, WhatItsBytesCannotPayForIsBroken) {
  EXPECT_EQ(first_of(0xc1).kind, Kind::kBroken);  // never used
  EXPECT_EQ(first_of(0xcd, 1).kind, Kind::kBroken);
  EXPECT_EQ(first_of(0xa2, 'a').kind, Kind::kBroken);
  EXPECT_EQ(first_of(0xc4).kind, Kind::kBroken);
  EXPECT_EQ(first_of(0xdd, 0xff, 0xff, 0xff, 0xff, 0).kind, Kind::kBroken);
  EXPECT_EQ(first_of(0xdf, 0, 0, 0, 1, 0).kind, Kind::kBroken);  // a key without its value
  EXPECT_EQ(first_of(0xc6, 0xff, 0xff, 0xff, 0xff, 0).kind, Kind::kBroken);
  EXPECT_EQ(MsgpackCursor({}).next().kind, Kind::kBroken);
}

TEST(MsgpackCursor, BehindWhatIsBrokenEverythingIs) {
  const std::array<std::byte, 4> message{std::byte{0xc1}, std::byte{1}, std::byte{1}, std::byte{1}};
  MsgpackCursor cursor(message);
  EXPECT_EQ(cursor.next().kind, Kind::kBroken);
  EXPECT_EQ(cursor.next().kind, Kind::kBroken);
  EXPECT_FALSE(cursor.skip(1));
}

TEST(MsgpackCursor, ADeepNestIsPassedOverWithoutDepth) {
  std::vector<std::byte> message(1 << 20, std::byte{0x91});  // an array of one, of one, of one ...
  message.back() = std::byte{0xc0};
  MsgpackCursor cursor(message);
  EXPECT_TRUE(cursor.skip(1));
  EXPECT_TRUE(cursor.left().empty());
  MsgpackCursor cut{std::span(message).first(message.size() - 1)};
  EXPECT_FALSE(cut.skip(1));
}

/// Packs one value of any kind, with others inside.
void pack_any(Packer& packer, std::mt19937_64& random, int depth) {
  const auto size = [&] { return static_cast<std::uint32_t>(1u << (random() % 18)) - 1; };
  switch (random() % (depth > 0 ? 11 : 9)) {
    case 0:
      packer.pack_nil();
      break;
    case 1:
      packer.pack(random() % 2 == 0);
      break;
    case 2:
      packer.pack(static_cast<std::uint64_t>(random() >> (random() % 64)));
      break;
    case 3:
      packer.pack(-static_cast<std::int64_t>((random() >> (1 + random() % 62)) + 1));
      break;
    case 4:
      packer.pack(1.5f);
      break;
    case 5:
      packer.pack(2.5);
      break;
    case 6:
      packer.pack(std::string(size(), 'x'));
      break;
    case 7: {
      const std::string body(size(), '\xc1');
      packer.pack_bin(static_cast<std::uint32_t>(body.size()));
      packer.pack_bin_body(body.data(), static_cast<std::uint32_t>(body.size()));
      break;
    }
    case 8: {
      const std::string body(random() % 2 == 0 ? std::size_t{1} << (random() % 5) : size(), 'e');
      packer.pack_ext(body.size(), 7);
      packer.pack_ext_body(body.data(), body.size());
      break;
    }
    case 9: {
      const auto count = static_cast<std::uint32_t>(random() % 20);
      packer.pack_array(count);
      for (std::uint32_t i = 0; i < count; ++i) pack_any(packer, random, depth - 1);
      break;
    }
    default: {
      const auto count = static_cast<std::uint32_t>(random() % 20);
      packer.pack_map(count);
      for (std::uint32_t i = 0; i < 2 * count; ++i) pack_any(packer, random, depth - 1);
    }
  }
}

TEST(MsgpackCursor, PassesOverWhateverTheLibraryPacks) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    msgpack::sbuffer buffer;
    Packer packer(buffer);
    pack_any(packer, random, 3);
    const std::size_t end = buffer.size();
    packer.pack(std::uint32_t{77});
    MsgpackCursor cursor(bytes_of(buffer));
    ASSERT_TRUE(cursor.skip(1)) << seed;
    EXPECT_EQ(cursor.left().size(), buffer.size() - end) << seed;
    EXPECT_EQ(cursor.next().number, 77u);
    MsgpackCursor cut(bytes_of(buffer).first(end - 1));
    EXPECT_FALSE(cut.skip(1)) << seed;
  }
}

}  // namespace
}  // namespace penstock
