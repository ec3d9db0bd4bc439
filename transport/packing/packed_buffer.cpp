#include "transport/packing/packed_buffer.hpp"

#include <cstring>

#include "transport/packing/page_copy.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kMagic = 0x4b434150'534e4550;  // "PENSPACK"

struct Header {
  std::uint64_t magic;
  std::uint64_t entries;
  std::uint64_t index;  // offset in the slot
  std::uint64_t reserved;
};
static_assert(sizeof(Header) == kPackedHeaderBytes);

struct Entry {
  std::uint64_t destination_offset;
  std::uint64_t bytes;
};
static_assert(sizeof(Entry) == kPackedEntryBytes);

template <class T>
T read(std::span<const std::byte> slot, std::uint64_t at) {
  T value;
  std::memcpy(&value, slot.data() + at, sizeof value);
  return value;
}

}  // namespace

PackedWriter::PackedWriter(std::span<std::byte> slot) : slot_(slot) {}

std::uint64_t PackedWriter::place(std::uint64_t destination_offset, std::uint64_t bytes) {
  const std::uint64_t at = payload_end_;
  payload_end_ += bytes;
  ++entries_;
  const Entry entry{destination_offset, bytes};
  std::memcpy(slot_.data() + slot_.size() - entries_ * sizeof entry, &entry, sizeof entry);
  return at;
}

void PackedWriter::add(std::uint64_t destination_offset, std::span<const std::byte> page) {
  std::memcpy(slot_.data() + place(destination_offset, page.size()), page.data(), page.size());
}

std::uint64_t PackedWriter::finish() {
  // Collected from the end downwards, so the index that crosses runs from the last page to the
  // first. Both places may overlap.
  const std::uint64_t bytes = entries_ * sizeof(Entry);
  std::memmove(slot_.data() + payload_end_, slot_.data() + slot_.size() - bytes, bytes);
  const Header header{kMagic, entries_, payload_end_, 0};
  std::memcpy(slot_.data(), &header, sizeof header);
  return payload_end_ + bytes;
}

Result<std::vector<MovedPage>> pages_of(std::span<const std::byte> slot,
                                        std::uint64_t region_bytes) {
  if (slot.size() < sizeof(Header))
    return fail(ErrorCode::kInvalidArgument, "a packed slot of {} bytes", slot.size());
  const auto header = read<Header>(slot, 0);
  if (header.magic != kMagic)
    return fail(ErrorCode::kInvalidArgument, "a packed slot without its mark");
  if (header.index < sizeof(Header) || header.index > slot.size() ||
      header.entries > (slot.size() - header.index) / sizeof(Entry))
    return fail(ErrorCode::kInvalidArgument,
                "a packed slot of {} bytes with {} entries at byte {}: the index does not fit",
                slot.size(), header.entries, header.index);
  std::vector<MovedPage> pages;
  pages.reserve(header.entries);
  std::uint64_t payload = sizeof(Header);
  for (std::uint64_t i = header.entries; i-- > 0;) {
    // Read once: the peer can still write to the slot.
    const auto entry = read<Entry>(slot, header.index + i * sizeof(Entry));
    if (entry.bytes > header.index - payload)
      return fail(ErrorCode::kInvalidArgument, "page {} of {} bytes passes the payload's end", i,
                  entry.bytes);
    if (entry.destination_offset > region_bytes ||
        entry.bytes > region_bytes - entry.destination_offset)
      return fail(ErrorCode::kOutOfRange, "page {} goes to bytes {} to {} + {}, the region has {}",
                  i, entry.destination_offset, entry.destination_offset, entry.bytes, region_bytes);
    if (entry.bytes > 0) pages.push_back({entry.destination_offset, payload, entry.bytes});
    payload += entry.bytes;
  }
  return pages;
}

Result<std::uint64_t> unpack(std::span<const std::byte> slot, std::span<std::byte> region) {
  const auto pages = pages_of(slot, region.size());
  if (!pages) return tl::unexpected(pages.error());
  scatter_pages(*pages, slot.data(), region.data());
  std::uint64_t bytes = 0;
  for (const MovedPage& page : *pages) bytes += page.bytes;
  return bytes;
}

}  // namespace penstock
