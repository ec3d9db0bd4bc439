// Memory made by cuMemCreate: ours and others'.
#include <vector>

#include "transport/gpu/cuda/allocation.hpp"
#include "transport/gpu/inventory.hpp"
#include "transport/gpu/page_mover.hpp"

namespace penstock {
namespace gpu {

CUmemAllocationProp virtual_properties(int gpu) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = gpu;
  int rdma = 0;
  driver()->cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                                 gpu);
  properties.allocFlags.gpuDirectRDMACapable = rdma != 0;
  return properties;
}

Result<std::uint64_t> virtual_granularity(int gpu) {
  const CUmemAllocationProp properties = virtual_properties(gpu);
  std::size_t granularity = 0;
  if (const CUresult error = driver()->cuMemGetAllocationGranularity(
          &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
      error != CUDA_SUCCESS)
    return driver_failed(error, "asking for the granularity of virtual GPU memory");
  return granularity;
}

VirtualMapping::~VirtualMapping() {
  if (mapped_) driver()->cuMemUnmap(address_, bytes_);
  if (address_ != 0) driver()->cuMemAddressFree(address_, bytes_);
}

Result<VirtualMapping> VirtualMapping::map(int gpu, CUmemGenericAllocationHandle handle,
                                           std::uint64_t bytes) {
  VirtualMapping mapping;
  mapping.bytes_ = bytes;
  if (const CUresult error = driver()->cuMemAddressReserve(&mapping.address_, bytes, 0, 0, 0);
      error != CUDA_SUCCESS)
    return driver_failed(error, fmt::format("reserving {} bytes of addresses", bytes),
                         ErrorCode::kResourceExhausted);
  if (const CUresult error = driver()->cuMemMap(mapping.address_, bytes, 0, handle, 0);
      error != CUDA_SUCCESS)
    return driver_failed(
        error,
        fmt::format("mapping {} bytes of virtual GPU memory (the size must be that of the "
                    "whole allocation)",
                    bytes),
        ErrorCode::kInvalidArgument);
  mapping.mapped_ = true;
  std::vector<CUmemAccessDesc> access;
  const auto allow = [&](int id) {
    CUmemAccessDesc one{};
    one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    one.location.id = id;
    one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access.push_back(one);
  };
  allow(gpu);
  for (const Gpu& other : gpu_inventory().gpus)
    if (other.index != gpu && gpu_reaches(other.index, gpu)) allow(other.index);
  if (const CUresult error =
          driver()->cuMemSetAccess(mapping.address_, bytes, access.data(), access.size());
      error != CUDA_SUCCESS)
    return driver_failed(error, fmt::format("making virtual memory of GPU {} accessible", gpu));
  return mapping;
}

namespace {

class VirtualMemory final : public Allocation {
 public:
  VirtualMemory(GpuMemoryOrigin origin, int gpu, VirtualMapping mapping, std::uint64_t offset,
                std::uint64_t bytes)
      : Allocation(origin, gpu, mapping.address() + offset, bytes), mapping_(std::move(mapping)) {}
  ~VirtualMemory() override {
    GpuScope scope(gpu());
    if (scope.entered()) (void)cudaDeviceSynchronize();  // unmapping under a kernel is an error
  }
  Result<GpuDescriptorHandle> descriptor() const override {
    return origin() == GpuMemoryOrigin::kVirtual ? export_descriptor() : Allocation::descriptor();
  }

 private:
  VirtualMapping mapping_;
};

Result<const Gpu*> require_virtual_memory(int index) {
  auto gpu = require_gpu(index);
  if (gpu && !(*gpu)->virtual_memory)
    return fail(ErrorCode::kUnsupported, "GPU {} ({}) has no virtual memory with descriptors",
                index, (*gpu)->name);
  return gpu;
}

}  // namespace
}  // namespace gpu

Result<std::shared_ptr<GpuMemory>> allocate_virtual_gpu_memory(int gpu, std::uint64_t bytes) {
  if (bytes == 0) return fail(ErrorCode::kInvalidArgument, "0 bytes of GPU memory asked");
  if (auto able = gpu::require_virtual_memory(gpu); !able) return tl::unexpected(able.error());
  GpuScope scope(gpu);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  const auto granularity = gpu::virtual_granularity(gpu);
  if (!granularity) return tl::unexpected(granularity.error());
  if (bytes > UINT64_MAX - *granularity)
    return fail(ErrorCode::kResourceExhausted, "{} bytes of GPU memory asked", bytes);
  const std::uint64_t whole = (bytes + *granularity - 1) / *granularity * *granularity;
  const CUmemAllocationProp properties = gpu::virtual_properties(gpu);
  CUmemGenericAllocationHandle handle{};
  if (const CUresult error = gpu::driver()->cuMemCreate(&handle, whole, &properties, 0);
      error != CUDA_SUCCESS)
    return gpu::driver_failed(
        error, fmt::format("{} bytes of virtual memory on GPU {}", whole, gpu),
        error == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::kResourceExhausted : ErrorCode::kProvider);
  auto mapping = gpu::VirtualMapping::map(gpu, handle, whole);
  gpu::driver()->cuMemRelease(handle);
  if (!mapping) return tl::unexpected(mapping.error());
  return std::make_shared<gpu::VirtualMemory>(GpuMemoryOrigin::kVirtual, gpu, *std::move(mapping),
                                              0, bytes);
}

Result<std::shared_ptr<GpuMemory>> import_gpu_descriptor(int gpu, int fd,
                                                         std::uint64_t allocation_bytes,
                                                         std::uint64_t offset,
                                                         std::uint64_t bytes) {
  if (bytes == 0) return fail(ErrorCode::kInvalidArgument, "0 bytes of GPU memory asked");
  if (offset > allocation_bytes || bytes > allocation_bytes - offset)
    return fail(ErrorCode::kOutOfRange, "[{}, +{}) is not inside an allocation of {} bytes", offset,
                bytes, allocation_bytes);
  if (auto able = gpu::require_virtual_memory(gpu); !able) return tl::unexpected(able.error());
  GpuScope scope(gpu);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  CUmemGenericAllocationHandle handle{};
  if (const CUresult error = gpu::driver()->cuMemImportFromShareableHandle(
          &handle, gpu::pointer(static_cast<std::uint64_t>(fd)),
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      error != CUDA_SUCCESS)
    return gpu::driver_failed(
        error,
        fmt::format("importing descriptor {} (it must come from cuMemExportToShareableHandle "
                    "of a live allocation; CUDA maps no dma-buf)",
                    fd),
        ErrorCode::kInvalidArgument);
  CUmemAllocationProp properties{};
  const CUresult asked = gpu::driver()->cuMemGetAllocationPropertiesFromHandle(&properties, handle);
  if (asked == CUDA_SUCCESS && properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
      properties.location.id != gpu) {
    gpu::driver()->cuMemRelease(handle);
    return fail(ErrorCode::kInvalidArgument, "the memory lies on GPU {}, not on GPU {}",
                properties.location.id, gpu);
  }
  auto mapping = gpu::VirtualMapping::map(gpu, handle, allocation_bytes);
  gpu::driver()->cuMemRelease(handle);
  if (!mapping) return tl::unexpected(mapping.error());
  return std::make_shared<gpu::VirtualMemory>(GpuMemoryOrigin::kVirtualImport, gpu,
                                              *std::move(mapping), offset, bytes);
}

}  // namespace penstock
