#include "transport/gpu/event.hpp"

#include <cstring>

#include "transport/gpu/cuda/driver.hpp"
#include "transport/gpu/scope.hpp"

namespace penstock {
namespace {

class CudaEvent final : public GpuEvent {
 public:
  CudaEvent(int gpu, cudaEvent_t event, bool imported)
      : gpu_(gpu), event_(event), imported_(imported) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override {
    GpuScope scope(gpu_);
    if (scope.entered() && cudaEventDestroy(event_) != cudaSuccess) (void)cudaGetLastError();
  }
  int gpu() const override { return gpu_; }
  void* native() const override { return event_; }

  Result<GpuEventHandle> ipc_handle() const override {
    if (imported_) return fail(ErrorCode::kUnsupported, "an imported event cannot be passed on");
    GpuScope scope(gpu_);
    if (!scope.entered()) return tl::unexpected(scope.entered().error());
    cudaIpcEventHandle_t raw;
    if (const cudaError_t error = cudaIpcGetEventHandle(&raw, event_); error != cudaSuccess)
      return gpu::cuda_failed(error, "exporting an event");
    GpuEventHandle handle;
    static_assert(sizeof(raw) == GpuEventHandle::kBytes);
    std::memcpy(handle.handle.data(), &raw, sizeof(raw));
    return handle;
  }

  Result<bool> done() const override {
    GpuScope scope(gpu_);
    if (!scope.entered()) return tl::unexpected(scope.entered().error());
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaSuccess) return true;
    if (state == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    return gpu::cuda_failed(state, "asking an event");
  }

 private:
  int gpu_;
  cudaEvent_t event_;
  bool imported_;
};

}  // namespace

Result<std::shared_ptr<GpuEvent>> make_gpu_event(int gpu) {
  GpuScope scope(gpu);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  cudaEvent_t event = nullptr;
  if (const cudaError_t error =
          cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess);
      error != cudaSuccess)
    return gpu::cuda_failed(error, fmt::format("making an event on GPU {}", gpu));
  return std::make_shared<CudaEvent>(gpu, event, false);
}

Result<std::shared_ptr<GpuEvent>> import_gpu_event(int gpu, const GpuEventHandle& handle) {
  GpuScope scope(gpu);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  cudaIpcEventHandle_t raw;
  std::memcpy(&raw, handle.handle.data(), sizeof(raw));
  cudaEvent_t event = nullptr;
  if (const cudaError_t error = cudaIpcOpenEventHandle(&event, raw); error != cudaSuccess)
    return gpu::cuda_failed(error,
                            fmt::format("opening an event on GPU {} (it must be alive, of this GPU "
                                        "and of another process)",
                                        gpu),
                            ErrorCode::kInvalidArgument);
  return std::make_shared<CudaEvent>(gpu, event, true);
}

}  // namespace penstock
