// XXH3 (64 bit, seed 0) as functions that run on either side: the xxHash library has none for
// kernels. Written from the algorithm's description; a test compares it with the library.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PENSTOCK_EITHER __host__ __device__ __forceinline__
#else
#define PENSTOCK_EITHER inline
#endif

namespace penstock::gpu::xxh3 {

using Bytes = unsigned char;

inline constexpr int kSecretBytes = 192;
/// The library's default secret: the caller gets it from there.
struct Secret {
  Bytes bytes[kSecretBytes];
};

inline constexpr std::uint64_t kPrime32One = 0x9E3779B1u;
inline constexpr std::uint64_t kPrime32Two = 0x85EBCA77u;
inline constexpr std::uint64_t kPrime32Three = 0xC2B2AE3Du;
inline constexpr std::uint64_t kPrime64One = 0x9E3779B185EBCA87u;
inline constexpr std::uint64_t kPrime64Two = 0xC2B2AE3D27D4EB4Fu;
inline constexpr std::uint64_t kPrime64Three = 0x165667B19E3779F9u;
inline constexpr std::uint64_t kPrime64Four = 0x85EBCA77C2B2AE63u;
inline constexpr std::uint64_t kPrime64Five = 0x27D4EB2F165667C5u;

/// Longer inputs are digested in stripes of 64 bytes by eight accumulators.
inline constexpr std::uint64_t kShort = 240;
inline constexpr std::uint64_t kStripeBytes = 64;
inline constexpr int kLanes = 8;  // accumulators
inline constexpr int kStripesPerBlock = 16;
inline constexpr std::uint64_t kBlockBytes = kStripeBytes * kStripesPerBlock;
/// Where in the secret the keys of a block's end, of the last stripe and of the merge lie.
inline constexpr int kScrambleAt = kSecretBytes - 64;
inline constexpr int kLastStripeAt = kSecretBytes - 64 - 7;
inline constexpr int kMergeAt = 11;

PENSTOCK_EITHER std::uint32_t read32(const Bytes* from) {
  return from[0] | from[1] << 8 | from[2] << 16 | static_cast<std::uint32_t>(from[3]) << 24;
}
PENSTOCK_EITHER std::uint64_t read64(const Bytes* from) {
#ifdef __CUDA_ARCH__
  if (reinterpret_cast<std::uintptr_t>(from) % 8 == 0)
    return *reinterpret_cast<const std::uint64_t*>(from);
#endif
  return read32(from) | static_cast<std::uint64_t>(read32(from + 4)) << 32;
}
PENSTOCK_EITHER std::uint64_t rotate_left(std::uint64_t x, int by) {
  return x << by | x >> (64 - by);
}
PENSTOCK_EITHER std::uint32_t swap32(std::uint32_t x) {
  return x << 24 | (x << 8 & 0xff0000u) | (x >> 8 & 0xff00u) | x >> 24;
}
PENSTOCK_EITHER std::uint64_t swap64(std::uint64_t x) {
  return static_cast<std::uint64_t>(swap32(static_cast<std::uint32_t>(x))) << 32 |
         swap32(static_cast<std::uint32_t>(x >> 32));
}
/// The halves of the 128-bit product, xored.
PENSTOCK_EITHER std::uint64_t fold_product(std::uint64_t a, std::uint64_t b) {
#ifdef __CUDA_ARCH__
  return a * b ^ __umul64hi(a, b);
#else
  const std::uint64_t low_a = a & 0xffffffffu, high_a = a >> 32;
  const std::uint64_t low_b = b & 0xffffffffu, high_b = b >> 32;
  const std::uint64_t middle = high_a * low_b + (low_a * low_b >> 32);
  const std::uint64_t other = low_a * high_b + (middle & 0xffffffffu);
  return a * b ^ (high_a * high_b + (middle >> 32) + (other >> 32));
#endif
}
PENSTOCK_EITHER std::uint64_t avalanche(std::uint64_t x) {
  x ^= x >> 37;
  x *= 0x165667919E3779F9u;
  return x ^ x >> 32;
}
PENSTOCK_EITHER std::uint64_t avalanche_64(std::uint64_t x) {
  x ^= x >> 33;
  x *= kPrime64Two;
  x ^= x >> 29;
  x *= kPrime64Three;
  return x ^ x >> 32;
}
PENSTOCK_EITHER std::uint64_t mix16(const Bytes* input, const Bytes* secret) {
  return fold_product(read64(input) ^ read64(secret), read64(input + 8) ^ read64(secret + 8));
}

PENSTOCK_EITHER std::uint64_t digest_to_16(const Bytes* input, std::uint64_t length,
                                           const Bytes* secret) {
  if (length == 0) return avalanche_64(read64(secret + 56) ^ read64(secret + 64));
  if (length <= 3) {
    const std::uint32_t joined = static_cast<std::uint32_t>(input[0]) << 16 |
                                 static_cast<std::uint32_t>(input[length >> 1]) << 24 |
                                 input[length - 1] | static_cast<std::uint32_t>(length) << 8;
    return avalanche_64(joined ^ static_cast<std::uint64_t>(read32(secret) ^ read32(secret + 4)));
  }
  if (length <= 8) {
    const std::uint64_t joined =
        read32(input + length - 4) + (static_cast<std::uint64_t>(read32(input)) << 32);
    std::uint64_t x = joined ^ read64(secret + 8) ^ read64(secret + 16);
    x ^= rotate_left(x, 49) ^ rotate_left(x, 24);
    x *= 0x9FB21C651E98DF25u;
    x ^= (x >> 35) + length;
    x *= 0x9FB21C651E98DF25u;
    return x ^ x >> 28;
  }
  const std::uint64_t low = read64(input) ^ read64(secret + 24) ^ read64(secret + 32);
  const std::uint64_t high = read64(input + length - 8) ^ read64(secret + 40) ^ read64(secret + 48);
  return avalanche(length + swap64(low) + high + fold_product(low, high));
}

PENSTOCK_EITHER std::uint64_t digest_to_128(const Bytes* input, std::uint64_t length,
                                            const Bytes* secret) {
  std::uint64_t sum = length * kPrime64One;
  for (int i = static_cast<int>((length - 1) / 32); i >= 0; --i) {
    sum += mix16(input + 16 * i, secret + 32 * i);
    sum += mix16(input + length - 16 * (i + 1), secret + 32 * i + 16);
  }
  return avalanche(sum);
}

PENSTOCK_EITHER std::uint64_t digest_to_240(const Bytes* input, std::uint64_t length,
                                            const Bytes* secret) {
  std::uint64_t sum = length * kPrime64One;
  const int rounds = static_cast<int>(length / 16);
  for (int i = 0; i < 8; ++i) sum += mix16(input + 16 * i, secret + 16 * i);
  sum = avalanche(sum);
  for (int i = 8; i < rounds; ++i) sum += mix16(input + 16 * i, secret + 16 * (i - 8) + 3);
  return avalanche(sum + mix16(input + length - 16, secret + 136 - 17));
}

/// Of at most kShort bytes.
PENSTOCK_EITHER std::uint64_t digest_short(const Bytes* input, std::uint64_t length,
                                           const Bytes* secret) {
  if (length <= 16) return digest_to_16(input, length, secret);
  return length <= 128 ? digest_to_128(input, length, secret)
                       : digest_to_240(input, length, secret);
}

// Longer ones, lane by lane. Each lane takes 8 bytes of every stripe; what it read is added to its
// neighbour's accumulator (lane ^ 1), the product to its own.

PENSTOCK_EITHER std::uint64_t lane_start(int lane) {
  switch (lane) {
    case 0:
      return kPrime32Three;
    case 1:
      return kPrime64One;
    case 2:
      return kPrime64Two;
    case 3:
      return kPrime64Three;
    case 4:
      return kPrime64Four;
    case 5:
      return kPrime32Two;
    case 6:
      return kPrime64Five;
    default:
      return kPrime32One;
  }
}
PENSTOCK_EITHER std::uint64_t lane_product(std::uint64_t read, std::uint64_t key) {
  const std::uint64_t keyed = read ^ key;
  return (keyed & 0xffffffffu) * (keyed >> 32);
}
PENSTOCK_EITHER std::uint64_t lane_scramble(std::uint64_t sum, std::uint64_t key) {
  return (sum ^ sum >> 47 ^ key) * kPrime32One;
}
/// What lanes 2 * pair and 2 * pair + 1 give to the result.
PENSTOCK_EITHER std::uint64_t merge_pair(std::uint64_t even, std::uint64_t odd, int pair,
                                         const Bytes* secret) {
  const Bytes* keys = secret + kMergeAt + 16 * pair;
  return fold_product(even ^ read64(keys), odd ^ read64(keys + 8));
}

/// Any length, in order: what the kernel's lanes do side by side.
PENSTOCK_EITHER std::uint64_t digest(const Bytes* input, std::uint64_t length,
                                     const Bytes* secret) {
  if (length <= kShort) return digest_short(input, length, secret);
  std::uint64_t sums[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) sums[lane] = lane_start(lane);
  const auto take = [&](const Bytes* stripe, const Bytes* keys) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t read = read64(stripe + 8 * lane);
      sums[lane ^ 1] += read;
      sums[lane] += lane_product(read, read64(keys + 8 * lane));
    }
  };
  const std::uint64_t stripes = (length - 1) / kStripeBytes;
  for (std::uint64_t i = 0; i < stripes; ++i) {
    take(input + i * kStripeBytes, secret + 8 * (i % kStripesPerBlock));
    if (i % kStripesPerBlock != kStripesPerBlock - 1) continue;
    for (int lane = 0; lane < kLanes; ++lane)
      sums[lane] = lane_scramble(sums[lane], read64(secret + kScrambleAt + 8 * lane));
  }
  take(input + length - kStripeBytes, secret + kLastStripeAt);
  std::uint64_t result = length * kPrime64One;
  for (int pair = 0; pair < kLanes / 2; ++pair)
    result += merge_pair(sums[2 * pair], sums[2 * pair + 1], pair, secret);
  return avalanche(result);
}

}  // namespace penstock::gpu::xxh3
