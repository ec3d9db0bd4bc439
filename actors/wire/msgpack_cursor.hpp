// Reads msgpack where it lies, item by item: what a message says is known from its schema, so no
// tree of its values is built first. Formats: github.com/msgpack/msgpack/blob/master/spec.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

class MsgpackCursor {
 public:
  enum class Kind : std::uint8_t {
    kNumber,  ///< whole, not negative
    kTruth,   ///< `number` is 0 or 1
    kNil,
    kText,
    kBinary,
    kArray,  ///< `number` items follow
    kMap,    ///< `number` pairs of items follow
    kOther,  ///< negative, floating-point or an extension
    kBroken  ///< not msgpack, or its end is missing; so is all that follows
  };
  struct Item {
    Kind kind = Kind::kBroken;
    std::uint64_t number = 0;
    std::span<const std::byte> body;  ///< of kText and kBinary; refers to the message
  };

  explicit MsgpackCursor(std::span<const std::byte> bytes) : left_(bytes) {}

  /// An array or map has no more items than bytes are left.
  Item next();
  /// Passes over so many values with all that is in them; false: broken.
  bool skip(std::uint64_t values);
  std::span<const std::byte> left() const { return left_; }

 private:
  Item broken();
  /// The next `bytes` bytes as a number, big-endian; `broken_` when there are not so many.
  std::uint64_t big_endian(std::size_t bytes);
  Item sized(Kind kind, std::uint64_t size);
  Item container(Kind kind, std::uint64_t count);

  std::span<const std::byte> left_;
  bool broken_ = false;
};

}  // namespace penstock
