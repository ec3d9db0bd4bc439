#include <algorithm>

#include "transport/gpu/cuda/pattern_kernels.hpp"

namespace penstock::gpu {
namespace {

using Bytes = unsigned char;

constexpr unsigned kThreads = 256;
constexpr std::uint64_t kWordBytes = 8;

__device__ __forceinline__ std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// A thread per word of the pattern, the first and last of which may be cut.
__global__ void __launch_bounds__(kThreads)
    fill_kernel(Bytes* memory, std::uint64_t length, std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t first_word = position / kWordBytes;
  const std::uint64_t words = (position + length - 1) / kWordBytes - first_word + 1;
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < words; i += step) {
    const std::uint64_t value = splitmix64(seed + first_word + i);
    const std::uint64_t word_at = (first_word + i) * kWordBytes;
    const std::uint64_t start = max(word_at, position);
    const std::uint64_t end = min(word_at + kWordBytes, position + length);
    Bytes* to = memory + (start - position);
    if (end - start == kWordBytes && reinterpret_cast<std::uint64_t>(to) % kWordBytes == 0) {
      *reinterpret_cast<std::uint64_t*>(to) = value;
    } else {
      for (std::uint64_t at = start; at < end; ++at)
        memory[at - position] = static_cast<Bytes>(value >> (8 * (at - word_at)));
    }
  }
}

/// Short pages: a thread each.
__global__ void __launch_bounds__(kThreads)
    digest_short_kernel(const Bytes* memory, std::uint64_t page_bytes, const std::uint64_t* offsets,
                        std::uint64_t count, std::uint64_t* digests,
                        const __grid_constant__ xxh3::Secret secret) {
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < count; i += step)
    digests[i] = xxh3::digest_short(memory + offsets[i], page_bytes, secret.bytes);
}

/// Long pages: eight threads each, one per accumulator, which swap what they read with their
/// neighbour. A block of 16 stripes is loaded before any of it is used.
__global__ void __launch_bounds__(kThreads)
    digest_long_kernel(const Bytes* memory, std::uint64_t page_bytes, const std::uint64_t* offsets,
                       std::uint64_t count, std::uint64_t* digests,
                       const __grid_constant__ xxh3::Secret given) {
  using namespace xxh3;
  __shared__ __align__(8) Secret secret;
  if (threadIdx.x < kSecretBytes) secret.bytes[threadIdx.x] = given.bytes[threadIdx.x];
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  const unsigned group = 0xffu << (threadIdx.x % 32 / kLanes * kLanes);
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * (blockDim.x / kLanes);
  const std::uint64_t stripes = (page_bytes - 1) / kStripeBytes;
  for (std::uint64_t i =
           (static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kLanes;
       i < count; i += step) {
    const Bytes* page = memory + offsets[i];
    std::uint64_t sum = lane_start(lane);
    const auto take = [&](std::uint64_t read, std::uint64_t key) {
      sum += __shfl_xor_sync(group, read, 1) + lane_product(read, key);
    };
    const auto key_at = [&](int offset) { return read64(secret.bytes + offset + 8 * lane); };
    for (std::uint64_t first = 0; first < stripes; first += kStripesPerBlock) {
      const Bytes* block = page + first * kStripeBytes + 8 * lane;
      const std::uint64_t left = stripes - first;
      const int here = left < kStripesPerBlock ? static_cast<int>(left) : kStripesPerBlock;
      std::uint64_t read[kStripesPerBlock];
#pragma unroll
      for (int k = 0; k < kStripesPerBlock; ++k)
        if (k < here) read[k] = read64(block + k * kStripeBytes);
#pragma unroll
      for (int k = 0; k < kStripesPerBlock; ++k)
        if (k < here) take(read[k], key_at(8 * k));
      if (here == kStripesPerBlock) sum = lane_scramble(sum, key_at(kScrambleAt));
    }
    take(read64(page + page_bytes - kStripeBytes + 8 * lane), key_at(kLastStripeAt));
    const std::uint64_t neighbour = __shfl_xor_sync(group, sum, 1);
    std::uint64_t part = lane % 2 == 0 ? merge_pair(sum, neighbour, lane / 2, secret.bytes) : 0;
    for (int apart = kLanes / 2; apart > 0; apart /= 2) part += __shfl_xor_sync(group, part, apart);
    if (lane == 0) digests[i] = avalanche(page_bytes * kPrime64One + part);
  }
}

/// The launch's own result, not what another call left behind.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), std::uint64_t threads, cudaStream_t stream,
                   const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(
      std::clamp<std::uint64_t>((threads + kThreads - 1) / kThreads, 1, 65535));
  config.blockDim = kThreads;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace

cudaError_t launch_fill(std::uint64_t memory, std::uint64_t length, std::uint64_t seed,
                        std::uint64_t position, cudaStream_t stream) {
  if (length == 0) return cudaSuccess;
  return launch(fill_kernel, length / kWordBytes + 2, stream, reinterpret_cast<Bytes*>(memory),
                length, seed, position);
}

cudaError_t launch_digest(std::uint64_t memory, std::uint64_t page_bytes,
                          const std::uint64_t* offsets, std::uint64_t count, std::uint64_t* digests,
                          const xxh3::Secret& secret, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const auto* bytes = reinterpret_cast<const Bytes*>(memory);
  if (page_bytes <= xxh3::kShort)
    return launch(digest_short_kernel, count, stream, bytes, page_bytes, offsets, count, digests,
                  secret);
  return launch(digest_long_kernel, count * xxh3::kLanes, stream, bytes, page_bytes, offsets, count,
                digests, secret);
}

}  // namespace penstock::gpu
