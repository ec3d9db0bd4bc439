// What tests of the GPU floor share: memory with known bytes on either side, and waiting.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "transport/gpu/gpu_memory.hpp"
#include "transport/gpu/inventory.hpp"
#include "transport/gpu/page_mover.hpp"
#include "transport/gpu/pinned.hpp"
#include "transport/gpu/scope.hpp"
#include "transport/memory/pattern.hpp"

namespace penstock {

#define PENSTOCK_NEEDS_GPU() \
  if (gpu_inventory().gpus.empty()) GTEST_SKIP() << "no GPU: " << gpu_inventory().why_none

/// The value, or the test's end.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return *std::move(result);
}
inline void must(Result<void> result) {
  if (!result) throw std::runtime_error(result.error().message);
}

inline constexpr auto kPatience = std::chrono::seconds(30);

/// Until the copy is done: its error, or nothing.
inline Result<void> wait(PageMover& mover, const CopyTicket& ticket) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    const auto state = mover.poll(ticket);
    if (!state) return tl::unexpected(state.error());
    if (*state == CopyState::kDone) return {};
    std::this_thread::yield();
  }
  return fail(ErrorCode::kDeadlineExceeded, "a copy took more than 30 s");
}

inline std::uint64_t address_of(const RegionMemory& memory) {
  return reinterpret_cast<std::uint64_t>(memory.bytes().data());
}

/// Bytes on a GPU or in pinned host memory, which a test sets and reads.
class Side {
 public:
  Side(bool on_gpu, std::uint64_t bytes, int gpu = 0) : size_(bytes) {
    if (on_gpu)
      gpu_memory_ = must(allocate_gpu_memory(gpu, bytes));
    else
      pinned_ = must(allocate_pinned_memory(bytes, -1, gpu));
  }
  std::uint64_t size() const { return size_; }
  CopyPlace place() const {
    if (gpu_memory_) return {address_of(*gpu_memory_), gpu_memory_->gpu()};
    return {pinned_->device_address(), -1};
  }
  void set(std::span<const std::byte> bytes) {
    if (gpu_memory_)
      must(write_gpu_memory(gpu_memory_->gpu(), address_of(*gpu_memory_), bytes));
    else
      std::memcpy(pinned_->memory()->bytes().data(), bytes.data(), bytes.size());
  }
  std::vector<std::byte> get() const {
    std::vector<std::byte> bytes(size_);
    if (gpu_memory_)
      must(read_gpu_memory(gpu_memory_->gpu(), bytes, address_of(*gpu_memory_)));
    else
      std::memcpy(bytes.data(), pinned_->memory()->bytes().data(), size_);
    return bytes;
  }

 private:
  std::uint64_t size_;
  std::shared_ptr<GpuMemory> gpu_memory_;
  std::shared_ptr<PinnedMemory> pinned_;
};

inline std::vector<std::byte> pattern(std::uint64_t bytes, std::uint64_t seed) {
  std::vector<std::byte> made(bytes);
  fill_pattern(made, seed, 0);
  return made;
}

/// Where two differ first; -1 when they are equal.
inline std::ptrdiff_t first_difference(const std::vector<std::byte>& a,
                                       const std::vector<std::byte>& b) {
  if (a.size() != b.size()) return 0;
  const auto found = std::mismatch(a.begin(), a.end(), b.begin());
  return found.first == a.end() ? -1 : found.first - a.begin();
}

}  // namespace penstock
