#include "actors/wire/msgpack_cursor.hpp"

namespace penstock {

MsgpackCursor::Item MsgpackCursor::broken() {
  broken_ = true;
  left_ = {};
  return {};
}

std::uint64_t MsgpackCursor::big_endian(std::size_t bytes) {
  if (bytes > left_.size()) {
    broken_ = true;
    return 0;
  }
  std::uint64_t number = 0;
  for (const std::byte byte : left_.first(bytes)) number = number << 8 | std::to_integer<int>(byte);
  left_ = left_.subspan(bytes);
  return number;
}

MsgpackCursor::Item MsgpackCursor::sized(Kind kind, std::uint64_t size) {
  if (broken_ || size > left_.size()) return broken();
  const Item item{kind, size, left_.first(size)};
  left_ = left_.subspan(size);
  return item;
}

MsgpackCursor::Item MsgpackCursor::container(Kind kind, std::uint64_t count) {
  const std::uint64_t items = kind == Kind::kMap ? 2 * count : count;
  return broken_ || items > left_.size() ? broken() : Item{kind, count, {}};
}

MsgpackCursor::Item MsgpackCursor::next() {
  if (left_.empty()) return broken();
  const auto head = std::to_integer<unsigned>(left_.front());
  left_ = left_.subspan(1);
  const auto number = [this](Kind kind, std::uint64_t value) {
    return broken_ ? broken() : Item{kind, value, {}};
  };
  // One that is written as signed and is not negative is a number like any other.
  const auto with_sign = [&](std::size_t bytes) {
    const std::uint64_t value = big_endian(bytes);
    return number((value >> (8 * bytes - 1)) == 0 ? Kind::kNumber : Kind::kOther, value);
  };
  if (head < 0x80) return {Kind::kNumber, head, {}};
  if (head < 0x90) return container(Kind::kMap, head & 0x0f);
  if (head < 0xa0) return container(Kind::kArray, head & 0x0f);
  if (head < 0xc0) return sized(Kind::kText, head & 0x1f);
  if (head >= 0xe0) return {Kind::kOther, 0, {}};
  switch (head) {
    case 0xc0:
      return {Kind::kNil, 0, {}};
    case 0xc2:
    case 0xc3:
      return {Kind::kTruth, head & 1, {}};
    case 0xc4:
    case 0xc5:
    case 0xc6:
      return sized(Kind::kBinary, big_endian(std::size_t{1} << (head - 0xc4)));
    case 0xc7:
    case 0xc8:
    case 0xc9:  // an extension says its type behind its length
      return sized(Kind::kOther, big_endian(std::size_t{1} << (head - 0xc7)) + 1);
    case 0xca:
      return sized(Kind::kOther, 4);
    case 0xcb:
      return sized(Kind::kOther, 8);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
      return number(Kind::kNumber, big_endian(std::size_t{1} << (head - 0xcc)));
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
      return with_sign(std::size_t{1} << (head - 0xd0));
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
      return sized(Kind::kOther, (std::uint64_t{1} << (head - 0xd4)) + 1);
    case 0xd9:
    case 0xda:
    case 0xdb:
      return sized(Kind::kText, big_endian(std::size_t{1} << (head - 0xd9)));
    case 0xdc:
    case 0xdd:
      return container(Kind::kArray, big_endian(std::size_t{2} << (head - 0xdc)));
    case 0xde:
    case 0xdf:
      return container(Kind::kMap, big_endian(std::size_t{2} << (head - 0xde)));
    default:
      return broken();  // 0xc1, which the specification never uses
  }
}

bool MsgpackCursor::skip(std::uint64_t values) {
  // A container is paid for by the bytes that are left, so the sum stays far below 2^64.
  for (; values > 0; --values) {
    const Item item = next();
    if (item.kind == Kind::kBroken) return false;
    if (item.kind == Kind::kArray) values += item.number;
    if (item.kind == Kind::kMap) values += 2 * item.number;
  }
  return true;
}

}  // namespace penstock
