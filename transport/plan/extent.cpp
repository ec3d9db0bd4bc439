#include "transport/plan/extent.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

namespace penstock {
namespace {

using u64 = std::uint64_t;

std::optional<u64> add(std::optional<u64> a, std::optional<u64> b) {
  u64 sum = 0;
  if (!a || !b || __builtin_add_overflow(*a, *b, &sum)) return std::nullopt;
  return sum;
}

std::optional<u64> multiply(std::optional<u64> a, std::optional<u64> b) {
  u64 product = 0;
  if (!a || !b || __builtin_mul_overflow(*a, *b, &product)) return std::nullopt;
  return product;
}

Result<Extent> measure_ranges(const Ranges& layout) {
  Extent extent;
  for (std::size_t i = 0; i < layout.ranges.size(); ++i) {
    const Range range = layout.ranges[i];
    if (range.length == 0) continue;
    u64 source_end = 0;
    u64 destination_end = 0;
    if (__builtin_add_overflow(range.source_offset, range.length, &source_end))
      return fail(ErrorCode::kInvalidArgument,
                  "range {}: source offset {} + length {} passes 2^64; offsets count from the "
                  "region's start",
                  i, range.source_offset, range.length);
    if (__builtin_add_overflow(range.destination_offset, range.length, &destination_end))
      return fail(ErrorCode::kInvalidArgument,
                  "range {}: destination offset {} + length {} passes 2^64; offsets count from the "
                  "region's start",
                  i, range.destination_offset, range.length);
    if (__builtin_add_overflow(extent.bytes, range.length, &extent.bytes))
      return fail(ErrorCode::kInvalidArgument,
                  "ranges 0 to {} ask for more than 2^64 bytes in all; split the transfer", i);
    extent.source_end = std::max(extent.source_end, source_end);
    extent.destination_end = std::max(extent.destination_end, destination_end);
  }
  return extent;
}

u64 largest(const BlobList<std::uint32_t>& pages) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) most = std::max(most, pages[i]);
  return most;
}

/// One side of a pages layout.
struct Side {
  std::string_view name;
  u64 base;  // the largest
  u64 page;  // the largest
  u64 stride;
  u64 pitch;
};

/// Offsets only grow with base, page and row, and every combination of them is walked, so the
/// largest of each give the true end: one check covers all pages.
Result<u64> end_of(const Side& side, const Pages& layout) {
  const auto last_page = add(side.base, multiply(side.page, side.stride));
  const auto last_row = add(last_page, multiply(u64{layout.rows} - 1, side.pitch));
  const auto end = add(last_row, layout.row_bytes);
  if (end) return *end;
  return fail(ErrorCode::kInvalidArgument,
              "pages: {} base {} + page {} * stride {} + row {} * pitch {} + row_bytes {} passes "
              "2^64; offsets count from the region's start",
              side.name, side.base, side.page, side.stride, layout.rows - 1, side.pitch,
              layout.row_bytes);
}

Result<Extent> measure_pages(const Pages& layout) {
  if (layout.source_pages.size() != layout.destination_pages.size())
    return fail(ErrorCode::kInvalidArgument,
                "pages: {} source pages but {} destination pages; page i of one list goes to page "
                "i of the other, so give as many of each",
                layout.source_pages.size(), layout.destination_pages.size());
  if (layout.source_pages.empty()) return Extent{};
  if (layout.rows == 0 || layout.row_bytes == 0)
    return fail(ErrorCode::kInvalidArgument,
                "pages: {} pages of {} rows of {} bytes; a page needs at least one row of one byte",
                layout.source_pages.size(), layout.rows, layout.row_bytes);
  if (layout.bases.empty()) return Extent{};

  u64 source_base = 0;
  u64 destination_base = 0;
  for (const BasePair& base : layout.bases) {
    source_base = std::max(source_base, base.source);
    destination_base = std::max(destination_base, base.destination);
  }
  const auto source_end = end_of({"source", source_base, largest(layout.source_pages),
                                  layout.source_stride, layout.source_pitch},
                                 layout);
  if (!source_end) return tl::unexpected(source_end.error());
  const auto destination_end =
      end_of({"destination", destination_base, largest(layout.destination_pages),
              layout.destination_stride, layout.destination_pitch},
             layout);
  if (!destination_end) return tl::unexpected(destination_end.error());

  const auto page_bytes = multiply(layout.row_bytes, layout.rows);
  const auto bytes =
      multiply(multiply(page_bytes, layout.source_pages.size()), layout.bases.size());
  if (!bytes)
    return fail(ErrorCode::kInvalidArgument,
                "pages: {} base pairs of {} pages of {} rows of {} bytes are more than 2^64 bytes "
                "in all; split the transfer",
                layout.bases.size(), layout.source_pages.size(), layout.rows, layout.row_bytes);
  return Extent{*bytes, *source_end, *destination_end};
}

}  // namespace

Result<Extent> measure(const Layout& layout) {
  if (const auto* ranges = std::get_if<Ranges>(&layout)) return measure_ranges(*ranges);
  return measure_pages(std::get<Pages>(layout));
}

}  // namespace penstock
