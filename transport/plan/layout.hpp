// What a user asks to be moved: which bytes of the source region go where in the destination one.
//
// Lists stay as they arrived, little-endian blobs inside the request's buffer; nothing here is
// unpacked into an object per page. Offsets are bytes from the start of a region, sizes are bytes,
// all 64-bit.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

namespace penstock {

/// A read-only list of little-endian T inside a buffer that `owner` keeps alive. Unaligned.
template <class T>
class BlobList {
 public:
  BlobList() = default;
  /// `bytes.size()` must be a multiple of sizeof(T): the caller has checked it.
  BlobList(std::span<const std::byte> bytes, std::shared_ptr<const void> owner)
      : bytes_(bytes), owner_(std::move(owner)) {}
  /// Copies `values` into a buffer of its own.
  static BlobList of(const std::vector<T>& values) {
    auto copy = std::make_shared<std::vector<T>>(values);
    auto bytes = std::as_bytes(std::span<const T>(*copy));
    return BlobList(bytes, std::move(copy));
  }

  std::size_t size() const { return bytes_.size() / sizeof(T); }
  bool empty() const { return bytes_.empty(); }
  T operator[](std::size_t i) const {
    T value;
    __builtin_memcpy(&value, bytes_.data() + i * sizeof(T), sizeof(T));
    return value;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

static_assert(std::endian::native == std::endian::little, "lists are read in place");

/// One contiguous piece of a `ranges` layout, as it lies in the blob.
struct Range {
  std::uint64_t source_offset;
  std::uint64_t destination_offset;
  std::uint64_t length;
};
static_assert(sizeof(Range) == 24);

struct Ranges {
  BlobList<Range> ranges;
};

/// Where the page lists apply: one pair per layer of a KV cache, for example.
struct BasePair {
  std::uint64_t source;
  std::uint64_t destination;
};

/// Pages in runs of rows. For each base pair b, page i and row r:
///   source offset = b.source + source_pages[i] * source_stride + r * source_pitch
///   destination offset =
///       b.destination + destination_pages[i] * destination_stride + r * destination_pitch
/// each `row_bytes` long. Plain pages are one row of page_bytes; `strided` has more (head slices
/// between different tensor-parallel degrees).
struct Pages {
  std::uint64_t row_bytes = 0;
  std::uint32_t rows = 1;
  std::uint64_t source_pitch = 0;
  std::uint64_t destination_pitch = 0;
  std::uint64_t source_stride = 0;
  std::uint64_t destination_stride = 0;
  BlobList<std::uint32_t> source_pages;
  BlobList<std::uint32_t> destination_pages;
  std::vector<BasePair> bases{{0, 0}};
};

using Layout = std::variant<Ranges, Pages>;

}  // namespace penstock
