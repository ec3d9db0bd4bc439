#include "transport/gpu/cuda/list_arena.hpp"

#include <iterator>

#include "transport/gpu/cuda/driver.hpp"
#include "transport/gpu/scope.hpp"

namespace penstock::gpu {
namespace {

constexpr std::uint64_t kAlignment = 256;
std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Result<std::shared_ptr<ListArena>> ListArena::make(int gpu, std::uint64_t bytes) {
  GpuScope scope(gpu);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  std::shared_ptr<ListArena> arena(new ListArena(gpu, bytes / kAlignment * kAlignment));
  void* host = nullptr;
  if (const cudaError_t error =
          cudaHostAlloc(&host, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
      error != cudaSuccess)
    return cuda_failed(error, fmt::format("pinning {} bytes of host memory for lists", bytes),
                       ErrorCode::kResourceExhausted);
  arena->host_ = static_cast<std::byte*>(host);
  void* mapped = nullptr;
  if (const cudaError_t error = cudaHostGetDevicePointer(&mapped, host, 0); error != cudaSuccess)
    return cuda_failed(error, "mapping pinned host memory");
  arena->mapped_ = static_cast<std::byte*>(mapped);
  void* device = nullptr;
  if (const cudaError_t error = cudaMalloc(&device, bytes); error != cudaSuccess)
    return cuda_failed(error, fmt::format("{} bytes on GPU {} for lists", bytes, gpu),
                       ErrorCode::kResourceExhausted);
  arena->device_ = static_cast<std::byte*>(device);
  return arena;
}

ListArena::~ListArena() {
  GpuScope scope(gpu_);
  if (!scope.entered()) return;
  for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
  if (device_ != nullptr) (void)cudaFree(device_);
  if (host_ != nullptr) (void)cudaFreeHost(host_);
  (void)cudaGetLastError();
}

std::optional<std::uint64_t> ListArena::take(std::uint64_t bytes) {
  bytes = aligned(bytes);
  std::lock_guard lock(mutex_);
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    const auto [offset, length] = *hole;
    if (length < bytes) continue;
    free_.erase(hole);
    if (length > bytes) free_.emplace(offset + bytes, length - bytes);
    return offset;
  }
  return std::nullopt;
}

void ListArena::give_back(std::uint64_t offset, std::uint64_t bytes) {
  bytes = aligned(bytes);
  std::lock_guard lock(mutex_);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(offset, bytes);
}

cudaEvent_t ListArena::take_event() {
  {
    std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      const cudaEvent_t event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return event;
}

void ListArena::give_back_event(cudaEvent_t event) {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
}

}  // namespace penstock::gpu
