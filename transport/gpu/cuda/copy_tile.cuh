// One tile, copied by one warp: any address, any length.
#pragma once

#include <cstdint>

namespace penstock::gpu {

using Bytes = unsigned char;

constexpr unsigned kLanes = 32;
constexpr std::uint32_t kVector = sizeof(uint4);

__device__ __forceinline__ std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

/// `count` vectors; both sides aligned. A lane has kUnroll loads under way before its first store:
/// with 8, a warp has 4 KiB in its registers.
template <unsigned kUnroll>
__device__ __forceinline__ void copy_vectors(uint4* to, const uint4* from, std::uint32_t count,
                                             std::uint32_t lane) {
  for (std::uint32_t start = lane; start < count; start += kUnroll * kLanes) {
    uint4 held[kUnroll];
#pragma unroll
    for (unsigned k = 0; k < kUnroll; ++k)
      if (start + k * kLanes < count) held[k] = __ldcs(from + start + k * kLanes);
#pragma unroll
    for (unsigned k = 0; k < kUnroll; ++k)
      if (start + k * kLanes < count) __stcs(to + start + k * kLanes, held[k]);
  }
}

/// The 16 bytes that start `shift` bytes (1 to 15) into the 32 of `low` and `high`.
__device__ __forceinline__ uint4 shifted(uint4 low, uint4 high, std::uint32_t shift) {
  const bool by_two = (shift & 8) != 0;
  const bool by_one = (shift & 4) != 0;
  const std::uint32_t bits = (shift & 3) * 8;
  const std::uint32_t a0 = by_two ? low.z : low.x;
  const std::uint32_t a1 = by_two ? low.w : low.y;
  const std::uint32_t a2 = by_two ? high.x : low.z;
  const std::uint32_t a3 = by_two ? high.y : low.w;
  const std::uint32_t a4 = by_two ? high.z : high.x;
  const std::uint32_t a5 = by_two ? high.w : high.y;
  const std::uint32_t b0 = by_one ? a1 : a0;
  const std::uint32_t b1 = by_one ? a2 : a1;
  const std::uint32_t b2 = by_one ? a3 : a2;
  const std::uint32_t b3 = by_one ? a4 : a3;
  const std::uint32_t b4 = by_one ? a5 : a4;
  return make_uint4(__funnelshift_r(b0, b1, bits), __funnelshift_r(b1, b2, bits),
                    __funnelshift_r(b2, b3, bits), __funnelshift_r(b3, b4, bits));
}

/// `count` vectors to aligned places, from `shift` bytes behind aligned ones: count + 1 are read.
__device__ __forceinline__ void copy_shifted(uint4* to, const uint4* from, std::uint32_t count,
                                             std::uint32_t shift, std::uint32_t lane) {
  constexpr unsigned kPairs = 2;
  for (std::uint32_t start = lane; start < count; start += kPairs * kLanes) {
    uint4 low[kPairs];
    uint4 high[kPairs];
#pragma unroll
    for (unsigned k = 0; k < kPairs; ++k) {
      const std::uint32_t at = start + k * kLanes;
      if (at < count) {
        low[k] = from[at];  // kept in the first cache: the neighbour reads it again
        high[k] = from[at + 1];
      }
    }
#pragma unroll
    for (unsigned k = 0; k < kPairs; ++k) {
      const std::uint32_t at = start + k * kLanes;
      if (at < count) __stcs(to + at, shifted(low[k], high[k], shift));
    }
  }
}

/// Any addresses and length. Never reads or writes a byte outside [from, from + length) and
/// [to, to + length), which must not overlap.
__device__ __forceinline__ void copy_bytes(Bytes* to, const Bytes* from, std::uint32_t length,
                                           std::uint32_t lane) {
  if (length < 4 * kVector) {
    Bytes held[2];
    if (lane < length) held[0] = from[lane];
    if (lane + kLanes < length) held[1] = from[lane + kLanes];
    if (lane < length) to[lane] = held[0];
    if (lane + kLanes < length) to[lane + kLanes] = held[1];
    return;
  }
  // head: up to the first vector of the destination that can be put together from vectors that lie
  // wholly inside the source; tail: what is left behind the last one. Both are at most 31 bytes.
  std::uint32_t head = static_cast<std::uint32_t>(-address_of(to) & (kVector - 1));
  const std::uint32_t shift = static_cast<std::uint32_t>((address_of(from) + head) & (kVector - 1));
  if (head < shift) head += kVector;
  const std::uint32_t count =
      shift == 0 ? (length - head) / kVector : (length - head + shift) / kVector - 1;
  const std::uint32_t tail_at = head + count * kVector;
  Bytes head_byte;
  Bytes tail_byte;
  if (lane < head) head_byte = from[lane];
  if (tail_at + lane < length) tail_byte = from[tail_at + lane];
  auto* body = reinterpret_cast<uint4*>(to + head);
  if (shift == 0)
    copy_vectors<4>(body, reinterpret_cast<const uint4*>(from + head), count, lane);
  else
    copy_shifted(body, reinterpret_cast<const uint4*>(from + head - shift), count, shift, lane);
  if (lane < head) to[lane] = head_byte;
  if (tail_at + lane < length) to[tail_at + lane] = tail_byte;
}

__device__ __forceinline__ bool overlap(const Bytes* to, const Bytes* from, std::uint64_t length) {
  const std::uint64_t apart =
      to < from ? address_of(from) - address_of(to) : address_of(to) - address_of(from);
  return apart < length;
}

/// As memmove, by one warp: what is read is read before anything is written over it. Slow, and
/// rarely needed.
template <class T>
__device__ __forceinline__ void move_overlapping(T* to, const T* from, std::uint64_t count,
                                                 std::uint32_t lane) {
  const std::uint64_t steps = (count + kLanes - 1) / kLanes;
  for (std::uint64_t step = 0; step < steps; ++step) {
    const std::uint64_t at = (to < from ? step : steps - 1 - step) * kLanes + lane;
    T held;
    if (at < count) held = from[at];
    __syncwarp();
    if (at < count) to[at] = held;
    __syncwarp();
  }
}

}  // namespace penstock::gpu
