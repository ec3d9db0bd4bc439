// Small pages that cross as one write: what lies in a staging slot.
//
//   header    32 bytes: magic, count of entries, where the index starts
//   payload   the pages, one behind the other
//   index     16 bytes a page, from the last page to the first: where it goes in the destination
//             region, and its length
//
// The index is behind the payload, so that pages are copied once without knowing how many will fit.
// Numbers are little-endian, as everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/error.hpp"
#include "transport/packing/slot_mover.hpp"

namespace penstock {

inline constexpr std::uint64_t kPackedHeaderBytes = 32;
inline constexpr std::uint64_t kPackedEntryBytes = 16;

/// The longest page that a slot takes.
constexpr std::uint64_t packed_page_most(std::uint64_t slot_bytes) {
  constexpr std::uint64_t kAround = kPackedHeaderBytes + kPackedEntryBytes;
  return slot_bytes > kAround ? slot_bytes - kAround : 0;
}

/// Fills one slot. The index is collected at the slot's end and moved behind the payload.
class PackedWriter {
 public:
  explicit PackedWriter(std::span<std::byte> slot);
  /// Whether a page of `bytes` still fits.
  bool fits(std::uint64_t bytes) const {
    return payload_end_ + bytes + (entries_ + 1) * kPackedEntryBytes <= slot_.size();
  }
  /// The page must fit.
  void add(std::uint64_t destination_offset, std::span<const std::byte> page);
  /// As add(), but the page is copied by somebody else: to the offset in the slot that is returned.
  std::uint64_t place(std::uint64_t destination_offset, std::uint64_t bytes);
  /// Writes header and index; returns how many bytes of the slot have to cross.
  std::uint64_t finish();
  std::uint64_t entries() const { return entries_; }

 private:
  std::span<std::byte> slot_;
  std::uint64_t payload_end_ = kPackedHeaderBytes;
  std::uint64_t entries_ = 0;
};

/// Where the pages of a slot go in a region of `region_bytes`. The slot was written by a peer: a
/// header or an entry that reaches outside is an error (kInvalidArgument, kOutOfRange). Read once:
/// what the peer writes to the index afterwards changes nothing.
Result<std::vector<MovedPage>> pages_of(std::span<const std::byte> slot,
                                        std::uint64_t region_bytes);

/// Copies every page of a slot to its place in `region`, or none; returns the bytes copied.
Result<std::uint64_t> unpack(std::span<const std::byte> slot, std::span<std::byte> region);

}  // namespace penstock
