// Which bytes of the source region go where in the destination region, as a client says it. Offsets
// are bytes from the start of a region; sizes are bytes; all 64-bit.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace penstock::client {

/// One contiguous piece.
struct Range {
  std::uint64_t source_offset = 0;
  std::uint64_t destination_offset = 0;
  std::uint64_t length = 0;

  friend bool operator==(const Range&, const Range&) = default;
};
static_assert(sizeof(Range) == 24, "packed as u64 triples");

/// Any pieces, in any order. Neighbours are merged by the service.
struct Ranges {
  std::vector<Range> ranges{};
};

/// Offsets at which the same page lists apply: one pair per layer of a KV cache, for example.
struct BasePair {
  std::uint64_t source = 0;
  std::uint64_t destination = 0;

  friend bool operator==(const BasePair&, const BasePair&) = default;
};

/// Page source_pages[i] goes to page destination_pages[i], for each base pair b:
///   source offset      = b.source      + source_pages[i]      * source_stride
///   destination offset = b.destination + destination_pages[i] * destination_stride
/// The two lists are read when the transfer is submitted, not later; they are packed with one copy.
struct Pages {
  std::uint64_t page_bytes = 0;
  std::uint64_t source_stride = 0;       // 0: page_bytes
  std::uint64_t destination_stride = 0;  // 0: page_bytes
  std::span<const std::uint32_t> source_pages{};
  std::span<const std::uint32_t> destination_pages{};
  std::vector<BasePair> bases{{0, 0}};
};

/// As Pages, but each page is `rows` rows of `row_bytes`; row r lies r * pitch further. Moves
/// slices of heads between caches of different tensor-parallel degree.
struct Strided {
  std::uint64_t row_bytes = 0;
  std::uint32_t rows = 1;
  std::uint64_t source_pitch = 0;        // 0: row_bytes
  std::uint64_t destination_pitch = 0;   // 0: row_bytes
  std::uint64_t source_stride = 0;       // 0: rows * source_pitch
  std::uint64_t destination_stride = 0;  // 0: rows * destination_pitch
  std::span<const std::uint32_t> source_pages{};
  std::span<const std::uint32_t> destination_pages{};
  std::vector<BasePair> bases{{0, 0}};
};

using Layout = std::variant<Ranges, Pages, Strided>;

/// Bytes that the layout moves; 0 for empty work. Saturates instead of wrapping.
std::uint64_t bytes_of(const Layout& layout);

}  // namespace penstock::client
