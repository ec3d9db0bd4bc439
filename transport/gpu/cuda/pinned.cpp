#include "transport/gpu/pinned.hpp"

#include "transport/gpu/cuda/driver.hpp"
#include "transport/gpu/scope.hpp"
#include "transport/memory/private_memory.hpp"

namespace penstock {
namespace {

class RegisteredHostMemory final : public PinnedMemory {
 public:
  RegisteredHostMemory(std::shared_ptr<RegionMemory> memory, std::uint64_t device_address, int gpu)
      : PinnedMemory(std::move(memory), device_address), gpu_(gpu) {}
  ~RegisteredHostMemory() override {
    GpuScope scope(gpu_);
    if (scope.entered() && cudaHostUnregister(memory()->bytes().data()) != cudaSuccess)
      (void)cudaGetLastError();
  }

 private:
  int gpu_;
};

}  // namespace

Result<std::shared_ptr<PinnedMemory>> pin_memory(std::shared_ptr<RegionMemory> memory, int gpu) {
  if (memory->kind() != MemoryKind::kHost)
    return fail(ErrorCode::kInvalidArgument, "memory of a GPU cannot be pinned");
  GpuScope scope(gpu);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  const auto bytes = memory->bytes();
  if (const cudaError_t error = cudaHostRegister(bytes.data(), bytes.size(),
                                                 cudaHostRegisterPortable | cudaHostRegisterMapped);
      error != cudaSuccess) {
    ErrorCode code = ErrorCode::kProvider;
    if (error == cudaErrorHostMemoryAlreadyRegistered) code = ErrorCode::kAlreadyExists;
    if (error == cudaErrorInvalidValue) code = ErrorCode::kInvalidArgument;
    if (error == cudaErrorMemoryAllocation) code = ErrorCode::kResourceExhausted;
    if (error == cudaErrorNotSupported) code = ErrorCode::kUnsupported;
    return gpu::cuda_failed(
        error, fmt::format("pinning {} bytes of host memory for GPU {}", bytes.size(), gpu), code);
  }
  void* device = nullptr;
  if (const cudaError_t error = cudaHostGetDevicePointer(&device, bytes.data(), 0);
      error != cudaSuccess) {
    (void)cudaHostUnregister(bytes.data());
    return gpu::cuda_failed(error, "mapping pinned host memory", ErrorCode::kUnsupported);
  }
  return std::make_shared<RegisteredHostMemory>(std::move(memory),
                                                reinterpret_cast<std::uint64_t>(device), gpu);
}

Result<std::shared_ptr<PinnedMemory>> allocate_pinned_memory(std::uint64_t bytes, int numa_node,
                                                             int gpu) {
  auto memory = allocate_private_memory(bytes, numa_node);
  if (!memory) return tl::unexpected(memory.error());
  return pin_memory(*std::move(memory), gpu);
}

}  // namespace penstock
