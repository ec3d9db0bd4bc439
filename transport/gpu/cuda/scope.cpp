#include "transport/gpu/scope.hpp"

#include <array>
#include <atomic>

#include "transport/gpu/cuda/driver.hpp"
#include "transport/gpu/inventory.hpp"

namespace penstock {
namespace {

/// The primary contexts that were current once: to see at little cost that one is.
std::array<std::atomic<CUcontext>, 64> seen_contexts;

CUcontext current_context() {
  CUcontext context = nullptr;
  gpu::driver()->cuCtxGetCurrent(&context);
  return context;
}

}  // namespace

Result<void> enter_gpu(int gpu) {
  if (auto found = require_gpu(gpu); !found) return tl::unexpected(found.error());
  if (!gpu::driver()) return tl::unexpected(gpu::driver().error());
  std::atomic<CUcontext>* seen = static_cast<std::size_t>(gpu) < seen_contexts.size()
                                     ? &seen_contexts[static_cast<std::size_t>(gpu)]
                                     : nullptr;
  const CUcontext current = current_context();
  if (current != nullptr && seen != nullptr && seen->load(std::memory_order_relaxed) == current)
    return {};
  if (const cudaError_t error = cudaSetDevice(gpu); error != cudaSuccess)
    return gpu::cuda_failed(error, fmt::format("making GPU {} current", gpu));
  if (seen != nullptr) seen->store(current_context(), std::memory_order_relaxed);
  return {};
}

// What was current before is kept as a context, not as a device: a thread that had none would
// otherwise get one on GPU 0, which costs that GPU half a gigabyte.
GpuScope::GpuScope(int gpu) {
  if (gpu::driver()) before_ = current_context();
  entered_ = enter_gpu(gpu);
  restores_ = entered_.has_value();
}

GpuScope::~GpuScope() {
  if (restores_ && current_context() != before_)
    gpu::driver()->cuCtxSetCurrent(static_cast<CUcontext>(before_));
}

Result<void> synchronise_gpu(int gpu) {
  GpuScope scope(gpu);
  if (!scope.entered()) return scope.entered();
  return gpu::check_cuda(cudaDeviceSynchronize(), "waiting for the GPU");
}

}  // namespace penstock
