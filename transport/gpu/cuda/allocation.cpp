#include "transport/gpu/cuda/allocation.hpp"

#include <unistd.h>

#include <cstring>

#include "transport/gpu/inventory.hpp"
#include "transport/gpu/page_mover.hpp"

namespace penstock::gpu {

Allocation::Allocation(GpuMemoryOrigin origin, int gpu, std::uint64_t address, std::uint64_t bytes)
    : origin_(origin),
      gpu_(gpu),
      bytes_(static_cast<std::byte*>(pointer(address)), bytes),
      buffer_id_(buffer_id_of(address)) {}

Result<std::uint64_t> Allocation::address_on(int gpu) const {
  if (!gpu_reaches(gpu, gpu_))
    return fail(ErrorCode::kInvalidArgument, "GPU {} cannot reach memory of GPU {}", gpu, gpu_);
  return address();
}

Result<GpuIpcHandle> Allocation::ipc_handle() const {
  return fail(ErrorCode::kUnsupported, "memory of kind '{}' has no IPC handle to pass on",
              name_of(origin_));
}

Result<GpuDescriptorHandle> Allocation::descriptor() const {
  return fail(ErrorCode::kUnsupported, "memory of kind '{}' has no descriptor to pass on",
              name_of(origin_));
}

Result<GpuIpcHandle> Allocation::export_ipc() const {
  GpuScope scope(gpu_);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  CUdeviceptr base = 0;
  std::size_t size = 0;
  if (const CUresult error = driver()->cuMemGetAddressRange(&base, &size, address());
      error != CUDA_SUCCESS)
    return driver_failed(error, "finding the allocation of a region");
  cudaIpcMemHandle_t handle;
  if (const cudaError_t error = cudaIpcGetMemHandle(&handle, pointer(base)); error != cudaSuccess)
    return cuda_failed(error, "exporting GPU memory by IPC handle", ErrorCode::kUnsupported);
  GpuIpcHandle exported;
  static_assert(sizeof(handle) == GpuIpcHandle::kBytes);
  std::memcpy(exported.handle.data(), &handle, sizeof(handle));
  exported.offset = address() - base;
  return exported;
}

Result<GpuDescriptorHandle> Allocation::export_descriptor() const {
  GpuScope scope(gpu_);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  CUmemGenericAllocationHandle handle{};
  if (const CUresult error = driver()->cuMemRetainAllocationHandle(&handle, pointer(address()));
      error != CUDA_SUCCESS)
    return driver_failed(error, "finding the virtual memory behind a region",
                         ErrorCode::kUnsupported);
  int fd = -1;
  const CUresult error = driver()->cuMemExportToShareableHandle(
      &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  driver()->cuMemRelease(handle);
  if (error != CUDA_SUCCESS)
    return driver_failed(
        error,
        "exporting virtual GPU memory as a descriptor (it must have been made with "
        "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)",
        ErrorCode::kUnsupported);
  GpuDescriptorHandle exported;
  exported.fd = GpuDescriptor(fd);
  const auto start =
      pointer_attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address(), address());
  exported.offset = address() - start;
  exported.allocation_bytes =
      pointer_attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address(), bytes_.size());
  return exported;
}

Result<GpuMemory::DmaBuf> Allocation::dma_buf() const {
  const auto gpu = require_gpu(gpu_);
  if (!gpu) return tl::unexpected(gpu.error());
  if (!(*gpu)->dma_buf)
    return fail(ErrorCode::kUnsupported, "GPU {} ({}) or its driver exports no dma-buf", gpu_,
                (*gpu)->name);
  GpuScope scope(gpu_);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t start = address() / page * page;
  const std::uint64_t end = (address() + bytes_.size() + page - 1) / page * page;
  int fd = -1;
  if (const CUresult error = driver()->cuMemGetHandleForAddressRange(
          &fd, start, end - start, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
      error != CUDA_SUCCESS)
    return driver_failed(error, "exporting GPU memory as a dma-buf", ErrorCode::kUnsupported);
  return DmaBuf{GpuDescriptor(fd), address() - start};
}

}  // namespace penstock::gpu
