// The order in which a layout is walked: base pair by base pair, entry by entry (a range, or a
// page), row by row. One generator serves both kinds of layout, so that merging and splitting are
// written once. No overflow is checked here: measure() (extent.hpp) has proven that no sum passes
// 2^64.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "transport/plan/layout.hpp"

namespace penstock {

/// Contiguous bytes on both sides. A length of 0 means "none".
struct Element {
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
  std::uint64_t length = 0;

  std::uint64_t source_end() const { return source + length; }
  std::uint64_t destination_end() const { return destination + length; }
  /// True when `next` continues this element on both sides.
  bool joins(const Element& next) const {
    return source_end() == next.source && destination_end() == next.destination;
  }
  Element shifted(std::uint64_t source_by, std::uint64_t destination_by) const {
    return {source + source_by, destination + destination_by, length};
  }
};

/// How the rows of one entry lie; a range is one row.
struct Rows {
  std::uint64_t count = 1;
  std::uint64_t source_pitch = 0;
  std::uint64_t destination_pitch = 0;

  Element last(const Element& first) const {
    return first.shifted((count - 1) * source_pitch, (count - 1) * destination_pitch);
  }
};

/// The entries of the list, relative to the base pair: ranges that are not empty, or the first row
/// of each page.
class EntryWalk {
 public:
  /// With `merge`, rows that lie one behind the other on both sides count as one long row.
  EntryWalk(const Layout& layout, bool merge)
      : ranges_(std::get_if<Ranges>(&layout)), pages_(std::get_if<Pages>(&layout)) {
    if (pages_ == nullptr) return;
    row_bytes_ = pages_->row_bytes;
    const bool dense =
        pages_->source_pitch == row_bytes_ && pages_->destination_pitch == row_bytes_;
    if (merge && dense)
      row_bytes_ *= pages_->rows;
    else
      rows_ = {pages_->rows, pages_->source_pitch, pages_->destination_pitch};
  }

  const Rows& rows() const { return rows_; }
  /// One for ranges, whose offsets are absolute.
  std::span<const BasePair> bases() const {
    static constexpr BasePair kOrigin{0, 0};
    return pages_ == nullptr ? std::span(&kOrigin, 1) : std::span(pages_->bases);
  }

  void rewind() { index_ = 0; }
  /// Sets `entry` to the next entry; false at the end.
  bool next(Element& entry) { return pages_ != nullptr ? next_page(entry) : next_range(entry); }

 private:
  bool next_page(Element& entry) {
    if (index_ == pages_->source_pages.size()) return false;
    entry.source = pages_->source_pages[index_] * pages_->source_stride;
    entry.destination = pages_->destination_pages[index_] * pages_->destination_stride;
    entry.length = row_bytes_;
    ++index_;
    return true;
  }

  bool next_range(Element& entry) {
    while (index_ < ranges_->ranges.size()) {
      const Range range = ranges_->ranges[index_++];
      entry = {range.source_offset, range.destination_offset, range.length};
      if (range.length != 0) return true;
    }
    return false;
  }

  const Ranges* ranges_;
  const Pages* pages_;
  std::uint64_t row_bytes_ = 0;
  Rows rows_;
  std::size_t index_ = 0;
};

/// Every element of a layout in order, with absolute offsets.
class ElementWalk {
 public:
  ElementWalk(const Layout& layout, bool merge) : entries_(layout, merge), row_(rows().count) {}

  /// Sets `element`, which must be what the last call set, to the next element; to one of length 0
  /// at the end and ever after.
  void next(Element& element) {
    if (row_ + 1 < rows().count) {
      ++row_;
      element.source += rows().source_pitch;
      element.destination += rows().destination_pitch;
      return;
    }
    const auto bases = entries_.bases();
    for (; base_ < bases.size(); ++base_, entries_.rewind()) {
      if (!entries_.next(element)) continue;
      row_ = 0;
      element.source += bases[base_].source;
      element.destination += bases[base_].destination;
      return;
    }
    element = {};
  }

 private:
  const Rows& rows() const { return entries_.rows(); }

  EntryWalk entries_;
  std::size_t base_ = 0;
  std::uint64_t row_;
};

}  // namespace penstock
