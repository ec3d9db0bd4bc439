// A region that the service allocated on a GPU, mapped into this process. Apart from the client
// library, which needs no CUDA: only programs that use this link it.
#pragma once

#include <cstdint>
#include <memory>

#include "client/cpp/region.hpp"
#include "transport/gpu/gpu_memory.hpp"

namespace penstock::client {

class MappedRegion {
 public:
  /// Opens the handle that the service gave. The GPU is found by its bus: the two processes may
  /// number them differently. Throws Error UNSUPPORTED (no handle, no CUDA, the GPU is hidden from
  /// this process) and what CUDA says.
  static MappedRegion open(const RegionInfo& region);

  /// Of the first byte, for kernels and copies of this process.
  std::uint64_t address() const;
  std::uint64_t bytes() const;
  const std::shared_ptr<GpuMemory>& memory() const { return memory_; }
  /// As this process numbers them.
  int gpu() const { return memory_->gpu(); }

 private:
  explicit MappedRegion(std::shared_ptr<GpuMemory> memory) : memory_(std::move(memory)) {}
  std::shared_ptr<GpuMemory> memory_;
};

}  // namespace penstock::client
