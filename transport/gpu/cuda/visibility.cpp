#include <algorithm>

#include "transport/gpu/cuda/driver.hpp"
#include "transport/gpu/gpu_memory.hpp"
#include "transport/gpu/inventory.hpp"
#include "transport/gpu/page_mover.hpp"
#include "transport/gpu/scope.hpp"

namespace penstock {

bool gpu_reaches(int gpu, int other) {
  const auto found = require_gpu(gpu);
  if (!found) return false;
  const auto& peers = (*found)->peers;
  return gpu == other || std::find(peers.begin(), peers.end(), other) != peers.end();
}

Result<CopyPlace> place_on(const RegionMemory& memory, int gpu) {
  const auto* on_gpu = dynamic_cast<const GpuMemory*>(&memory);
  if (on_gpu == nullptr)
    return fail(ErrorCode::kInvalidArgument, "host memory has to be pinned for a GPU to reach it");
  const auto address = on_gpu->address_on(gpu);
  if (!address) return tl::unexpected(address.error());
  return CopyPlace{*address, on_gpu->gpu()};
}

Result<void> make_visible(int gpu) {
  const auto found = require_gpu(gpu);
  if (!found) return tl::unexpected(found.error());
  if ((*found)->rdma_ordering != RdmaOrdering::kNone) return {};
  if (!(*found)->rdma_flush) return {};  // no card can have written there
  GpuScope scope(gpu);
  if (!scope.entered()) return scope.entered();
  if (const CUresult error = gpu::driver()->cuFlushGPUDirectRDMAWrites(
          CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
          CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
      error != CUDA_SUCCESS)
    return gpu::driver_failed(error, "making a card's writes visible to kernels");
  return {};
}

}  // namespace penstock
