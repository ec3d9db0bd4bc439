// The digest that kernels compute, run on the processor beside the library's.
#include "transport/gpu/cuda/xxh3.hpp"

#include <gtest/gtest.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include <vector>

#include "transport/memory/pattern.hpp"

namespace penstock::gpu {
namespace {

xxh3::Secret library_secret() {
  xxh3::Secret secret{};
  XXH3_generateSecret_fromSeed(secret.bytes, 0);
  return secret;
}

TEST(Xxh3, GivesWhatTheLibraryGivesForEveryShortLengthAndManyLongOnes) {
  const xxh3::Secret secret = library_secret();
  std::vector<std::byte> bytes(70'000 + 8);
  fill_pattern(bytes, 7, 0);
  for (std::size_t length = 0; length <= 70'000; length += length < 3000 ? 1 : 997) {
    for (const std::size_t start : {0u, 1u, 5u}) {
      const auto page = std::span(bytes).subspan(start, length);
      EXPECT_EQ(xxh3::digest(reinterpret_cast<const unsigned char*>(page.data()), page.size(),
                             secret.bytes),
                digest_page(page))
          << length << " bytes from " << start;
    }
  }
}

}  // namespace
}  // namespace penstock::gpu
