// Room for the lists of plans: pinned host memory, and as much in the GPU's memory at the same
// offsets. Made once, since asking the driver for memory stops the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "transport/error.hpp"

namespace penstock::gpu {

class ListArena {
 public:
  static Result<std::shared_ptr<ListArena>> make(int gpu, std::uint64_t bytes);
  ListArena(const ListArena&) = delete;
  ListArena& operator=(const ListArena&) = delete;
  ~ListArena();

  int gpu() const { return gpu_; }
  std::uint64_t bytes() const { return bytes_; }
  std::byte* host(std::uint64_t offset) const { return host_ + offset; }
  /// Of the host's part, as kernels see it.
  std::byte* mapped(std::uint64_t offset) const { return mapped_ + offset; }
  /// Of the GPU's part.
  std::byte* device(std::uint64_t offset) const { return device_ + offset; }

  /// First fit, aligned to 256 bytes. Any thread.
  std::optional<std::uint64_t> take(std::uint64_t bytes);
  void give_back(std::uint64_t offset, std::uint64_t bytes);

  /// An event to be given back; null when the driver has none.
  cudaEvent_t take_event();
  void give_back_event(cudaEvent_t event);

 private:
  ListArena(int gpu, std::uint64_t bytes) : gpu_(gpu), bytes_(bytes), free_{{0, bytes}} {}

  const int gpu_;
  const std::uint64_t bytes_;
  std::byte* host_ = nullptr;
  std::byte* mapped_ = nullptr;
  std::byte* device_ = nullptr;
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_;  // offset to length
  std::vector<cudaEvent_t> events_;
};

}  // namespace penstock::gpu
