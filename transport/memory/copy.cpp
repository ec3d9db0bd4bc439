#include "transport/memory/copy.hpp"

#include <cstring>

namespace penstock {

CopyProgress copy_slice(Cursor& cursor, std::span<const std::byte> source,
                        std::span<std::byte> destination, std::uint64_t slice_bytes,
                        const std::atomic<bool>& stop) {
  CopyProgress progress;
  Chunk chunk;
  while (progress.bytes < slice_bytes && !stop.load(std::memory_order_acquire) &&
         cursor.next(chunk)) {
    std::memmove(destination.data() + chunk.destination_offset, source.data() + chunk.source_offset,
                 chunk.length);
    progress.bytes += chunk.length;
    ++progress.chunks;
  }
  return progress;
}

}  // namespace penstock
