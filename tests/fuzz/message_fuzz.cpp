// libFuzzer's way in: any bytes as what a card may bring: a message of another node, sealed or not,
// a credit, a packed buffer (tests/fuzz/CMakeLists.txt builds and runs it).
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "actors/wire/message.hpp"
#include "transport/packing/credit.hpp"
#include "transport/packing/packed_buffer.hpp"

namespace {

using namespace penstock;

void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

void read_message(const Result<Message>& message) {
  if (!message) return require(!message.error().message.empty(), "refused without words");
  Message plain = *message;
  plain.sealed.clear();
  plain.seal.clear();
  const auto written = encode(plain);
  if (!written) return;  // with its seal it would be too long
  const auto again = decode_message(*written);
  require(again.has_value(), "what was read is readable when written");
  require(again->source == message->source && again->destination == message->destination &&
              again->sequence == message->sequence && again->body.index() == message->body.index(),
          "read, written and read again is the same");
}

/// No page that is named lies outside, and unpacking agrees.
void read_packed(std::span<const std::byte> slot) {
  std::vector<std::byte> region(512, std::byte{1});
  const auto pages = pages_of(slot, region.size());
  if (pages)
    for (const MovedPage& page : *pages) {
      require(page.bytes <= region.size() && page.region_offset <= region.size() - page.bytes,
              "a page lies inside its region");
      require(page.bytes <= slot.size() && page.slot_offset <= slot.size() - page.bytes,
              "a page lies inside its slot");
    }
  const auto copied = unpack(slot, region);
  require(copied.has_value() == pages.has_value(), "what can be read can be unpacked");
  if (!copied)
    for (const std::byte each : region)
      require(each == std::byte{1}, "a buffer that is refused writes nothing");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size, so that a sanitizer sees any read past it.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  read_message(decode_message(bytes));
  read_message(decode_sealed_message(bytes));
  if (const auto credit = decode_credit(bytes)) {
    require(credit->immediates.size() <= kMaxCreditSlots, "a credit is bounded");
    require(decode_credit(encode_credit(*credit)).has_value(), "a credit is readable again");
  }
  read_packed(bytes);
  return 0;
}
