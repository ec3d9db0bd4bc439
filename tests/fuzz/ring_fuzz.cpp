// What a client may write into the memory of its ring, and what the service makes of it.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "transport/ring/shared_ring.hpp"

namespace {

constexpr std::size_t kBytes = penstock::kLeastRingBytes;
constexpr std::size_t kIndexBytes = 2 * sizeof(std::uint64_t);

}  // namespace

/// The first words are the client's indices, the rest lies in the ring from its start.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto made = penstock::RingSegment::make(kBytes);
  if (!made || size < kIndexBytes) return 0;
  penstock::RingSegment& segment = made->first;
  penstock::RingHeader& header = segment.header();
  std::uint64_t indices[2];
  std::memcpy(indices, data, kIndexBytes);
  header.requests.head = indices[0];
  header.answers.tail = indices[1];
  std::memcpy(segment.requests().data(), data + kIndexBytes, std::min(size - kIndexBytes, kBytes));

  penstock::RingReader requests(header.requests, segment.requests());
  penstock::RingWriter answers(header.answers, segment.answers());
  std::vector<std::byte> payload;
  penstock::RingRecord kind{};
  // A ring holds no more records than this, whatever its client says.
  for (std::size_t i = 0; i <= kBytes / penstock::kRingRecordBytes; ++i) {
    if (requests.read(kind, payload) != penstock::RingResult::kDone) break;
    if (i == kBytes / penstock::kRingRecordBytes) std::abort();
    if (payload.size() > penstock::longest_in_ring(kBytes)) std::abort();
    (void)answers.write(kind, payload);
    (void)answers.must_ring();
  }
  (void)requests.sleep();
  return 0;
}
