#include "transport/packing/packed_buffer.hpp"

#include <cstring>

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

void PackedWriter::add(std::uint64_t destination_offset, std::span<const std::byte> page) {
  std::memcpy(slot_.data() + payload_end_, page.data(), page.size());
  payload_end_ += page.size();
  ++entries_;
  const Entry entry{destination_offset, page.size()};
  std::memcpy(slot_.data() + slot_.size() - entries_ * sizeof entry, &entry, sizeof entry);
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

Result<std::uint64_t> unpack(std::span<const std::byte> slot, std::span<std::byte> region) {
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
  std::uint64_t payload = sizeof(Header);
  for (std::uint64_t i = header.entries; i-- > 0;) {
    // Read once: the peer can still write to the slot.
    const auto entry = read<Entry>(slot, header.index + i * sizeof(Entry));
    if (entry.bytes > header.index - payload)
      return fail(ErrorCode::kInvalidArgument, "page {} of {} bytes passes the payload's end", i,
                  entry.bytes);
    if (entry.destination_offset > region.size() ||
        entry.bytes > region.size() - entry.destination_offset)
      return fail(ErrorCode::kOutOfRange, "page {} goes to bytes {} to {} + {}, the region has {}",
                  i, entry.destination_offset, entry.destination_offset, entry.bytes,
                  region.size());
    std::memcpy(region.data() + entry.destination_offset, slot.data() + payload, entry.bytes);
    payload += entry.bytes;
  }
  return payload - sizeof(Header);
}

}  // namespace penstock
