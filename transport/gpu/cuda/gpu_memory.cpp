// Memory made by cudaMalloc: ours, others' by IPC handle, and addresses of this process.
#include "transport/gpu/gpu_memory.hpp"

#include <cstring>
#include <map>
#include <mutex>

#include "transport/gpu/cuda/allocation.hpp"
#include "transport/gpu/inventory.hpp"

namespace penstock {
namespace gpu {
namespace {

class AllocatedMemory final : public Allocation {
 public:
  AllocatedMemory(int gpu, std::uint64_t address, std::uint64_t bytes)
      : Allocation(GpuMemoryOrigin::kAllocated, gpu, address, bytes) {}
  ~AllocatedMemory() override {
    GpuScope scope(gpu());
    if (scope.entered() && cudaFree(pointer(address())) != cudaSuccess) (void)cudaGetLastError();
  }
  Result<GpuIpcHandle> ipc_handle() const override { return export_ipc(); }
};

/// An IPC handle opened in the context of one GPU, which need not be the one the memory lies on.
class OpenedHandle {
 public:
  static Result<OpenedHandle> open(int in_gpu, const GpuIpcHandle& handle);
  OpenedHandle(OpenedHandle&& other) noexcept
      : gpu_(other.gpu_), base_(std::exchange(other.base_, nullptr)) {}
  OpenedHandle& operator=(OpenedHandle&&) = delete;
  ~OpenedHandle() {
    if (base_ == nullptr) return;
    GpuScope scope(gpu_);
    if (scope.entered() && cudaIpcCloseMemHandle(base_) != cudaSuccess) (void)cudaGetLastError();
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(base_); }

 private:
  OpenedHandle(int gpu, void* base) : gpu_(gpu), base_(base) {}
  int gpu_;
  void* base_;
};

class ImportedMemory final : public Allocation {
 public:
  ImportedMemory(int gpu, OpenedHandle opened, const GpuIpcHandle& handle, std::uint64_t bytes)
      : Allocation(GpuMemoryOrigin::kIpcImport, gpu, opened.address() + handle.offset, bytes),
        handle_(handle),
        opened_(std::move(opened)) {}

  Result<std::uint64_t> address_on(int gpu) const override {
    auto address = Allocation::address_on(gpu);
    if (!address || gpu == this->gpu()) return address;
    const std::lock_guard lock(mutex_);
    auto found = for_peers_.find(gpu);
    if (found == for_peers_.end()) {
      auto opened = OpenedHandle::open(gpu, handle_);
      if (!opened) return tl::unexpected(opened.error());
      found = for_peers_.emplace(gpu, *std::move(opened)).first;
    }
    return found->second.address() + handle_.offset;
  }

 private:
  const GpuIpcHandle handle_;
  const OpenedHandle opened_;
  mutable std::mutex mutex_;
  mutable std::map<int, OpenedHandle> for_peers_;
};

class BorrowedMemory final : public Allocation {
 public:
  BorrowedMemory(const GpuAddress& found, std::uint64_t address, std::uint64_t bytes)
      : Allocation(GpuMemoryOrigin::kBorrowed, found.gpu, address, bytes),
        virtual_(found.virtual_memory) {}
  Result<GpuIpcHandle> ipc_handle() const override {
    if (virtual_) return Allocation::ipc_handle();
    if (auto same = check(); !same) return tl::unexpected(same.error());
    return export_ipc();
  }
  Result<GpuDescriptorHandle> descriptor() const override {
    if (!virtual_) return Allocation::descriptor();
    if (auto same = check(); !same) return tl::unexpected(same.error());
    return export_descriptor();
  }
  Result<void> check() const override {
    GpuScope scope(gpu());
    if (!scope.entered()) return scope.entered();
    const std::uint64_t now = buffer_id_of(address());
    if (now == buffer_id()) return {};
    if (now == 0)
      return fail(ErrorCode::kStaleRegion, "the GPU memory at {:#x} was freed since", address());
    return fail(ErrorCode::kStaleRegion,
                "the GPU memory at {:#x} was freed since, and another allocation is there now",
                address());
  }

 private:
  bool virtual_;
};

std::string free_words() {
  std::size_t free_bytes = 0;
  std::size_t all = 0;
  if (cudaMemGetInfo(&free_bytes, &all) != cudaSuccess) {
    (void)cudaGetLastError();
    return "how much is free is unknown";
  }
  return fmt::format("{} of {} bytes are free", free_bytes, all);
}

/// Why cudaIpcOpenMemHandle failed, as the user of a region should read it.
tl::unexpected<Error> import_failed(cudaError_t error, int gpu) {
  const std::string what = fmt::format("opening an IPC handle on GPU {}", gpu);
  if (error == cudaErrorDeviceUninitialized)
    return cuda_failed(error, what + " (a handle cannot be opened by the process that made it)",
                       ErrorCode::kInvalidArgument);
  if (error == cudaErrorMemoryAllocation)
    return cuda_failed(error, what, ErrorCode::kResourceExhausted);
  if (error == cudaErrorInvalidValue || error == cudaErrorInvalidResourceHandle ||
      error == cudaErrorMapBufferObjectFailed || error == cudaErrorInvalidDevice)
    return cuda_failed(
        error, what + " (no such allocation: freed since, its process gone, or of another GPU)",
        ErrorCode::kNotFound);
  return cuda_failed(error, what);
}

Result<OpenedHandle> OpenedHandle::open(int in_gpu, const GpuIpcHandle& handle) {
  GpuScope scope(in_gpu);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  cudaIpcMemHandle_t raw;
  std::memcpy(&raw, handle.handle.data(), sizeof(raw));
  void* base = nullptr;
  if (const cudaError_t error = cudaIpcOpenMemHandle(&base, raw, cudaIpcMemLazyEnablePeerAccess);
      error != cudaSuccess)
    return import_failed(error, in_gpu);
  return OpenedHandle(in_gpu, base);
}

/// Makes a context current that may know addresses, without making a new one.
Result<int> enter_any_context() {
  CUcontext current = nullptr;
  if (!driver()) return tl::unexpected(driver().error());
  if (driver()->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr) {
    int gpu = -1;
    if (cudaGetDevice(&gpu) == cudaSuccess) return gpu;
  }
  for (const Gpu& gpu : gpu_inventory().gpus) {
    unsigned flags = 0;
    int active = 0;
    if (driver()->cuDevicePrimaryCtxGetState(gpu.index, &flags, &active) == CUDA_SUCCESS && active)
      return gpu.index;
  }
  return fail(ErrorCode::kInvalidArgument,
              "this process has no CUDA context, so no address of it is GPU memory");
}

}  // namespace
}  // namespace gpu

Result<std::shared_ptr<GpuMemory>> allocate_gpu_memory(int gpu, std::uint64_t bytes) {
  if (bytes == 0) return fail(ErrorCode::kInvalidArgument, "0 bytes of GPU memory asked");
  GpuScope scope(gpu);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  void* address = nullptr;
  if (const cudaError_t error = cudaMalloc(&address, bytes); error != cudaSuccess) {
    const auto code =
        error == cudaErrorMemoryAllocation ? ErrorCode::kResourceExhausted : ErrorCode::kProvider;
    auto failed = gpu::cuda_failed(error, fmt::format("{} bytes on GPU {}", bytes, gpu), code);
    if (code == ErrorCode::kResourceExhausted) failed.value().message += "; " + gpu::free_words();
    return failed;
  }
  return std::make_shared<gpu::AllocatedMemory>(gpu, reinterpret_cast<std::uint64_t>(address),
                                                bytes);
}

Result<std::shared_ptr<GpuMemory>> import_gpu_memory(int gpu, const GpuIpcHandle& handle,
                                                     std::uint64_t bytes) {
  if (bytes == 0) return fail(ErrorCode::kInvalidArgument, "0 bytes of GPU memory asked");
  auto opened = gpu::OpenedHandle::open(gpu, handle);
  if (!opened) return tl::unexpected(opened.error());
  GpuScope scope(gpu);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  const std::uint64_t start = opened->address();
  const int lies_on = gpu::pointer_attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, start, -1);
  if (lies_on != gpu)
    return fail(ErrorCode::kInvalidArgument, "the memory lies on GPU {}, not on GPU {}", lies_on,
                gpu);
  CUdeviceptr range = 0;
  std::size_t size = 0;
  if (const CUresult error = gpu::driver()->cuMemGetAddressRange(&range, &size, start);
      error != CUDA_SUCCESS)
    return gpu::driver_failed(error, "asking for the size of an imported allocation");
  const std::uint64_t available = range + size - start;
  if (handle.offset > available || bytes > available - handle.offset)
    return fail(ErrorCode::kOutOfRange, "[{}, +{}) is not inside an allocation of {} bytes",
                handle.offset, bytes, available);
  return std::make_shared<gpu::ImportedMemory>(gpu, *std::move(opened), handle, bytes);
}

Result<GpuAddress> describe_gpu_address(std::uint64_t address, std::uint64_t bytes) {
  const auto any = gpu::enter_any_context();
  if (!any) return tl::unexpected(any.error());
  GpuScope scope(*any);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  using gpu::pointer_attribute;
  const auto type = pointer_attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, 0);
  if (type == CU_MEMORYTYPE_HOST)
    return fail(ErrorCode::kInvalidArgument, "{:#x} is pinned host memory, not GPU memory",
                address);
  if (type != CU_MEMORYTYPE_DEVICE)
    return fail(ErrorCode::kInvalidArgument, "{:#x} is no GPU memory: host memory, or freed since",
                address);
  if (pointer_attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, address, 0) != 0)
    return fail(ErrorCode::kInvalidArgument,
                "{:#x} is managed memory, which moves; allocate with cudaMalloc", address);
  if (pointer_attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address, nullptr))
    return fail(ErrorCode::kUnsupported,
                "{:#x} comes from a stream-ordered pool (cudaMallocAsync), which no other process "
                "can map; allocate with cudaMalloc, or cuMemCreate with a descriptor",
                address);
  GpuAddress found;
  found.gpu = pointer_attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, -1);
  found.buffer_id = gpu::buffer_id_of(address);
  found.allocation =
      pointer_attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address, address);
  found.allocation_bytes =
      pointer_attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address, 0);
  found.virtual_memory =
      pointer_attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address, 0) == 0;
  const auto exportable =
      pointer_attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address, 0);
  if (found.virtual_memory && (exportable & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0)
    return fail(ErrorCode::kUnsupported,
                "{:#x} is virtual memory that was not made to be exported; make it with "
                "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR",
                address);
  const std::uint64_t available = found.allocation + found.allocation_bytes - address;
  if (bytes > available) {
    if (found.virtual_memory && gpu::buffer_id_of(address + available) != 0)
      return fail(ErrorCode::kUnsupported,
                  "[{:#x}, +{}) spans several allocations of virtual memory; register each",
                  address, bytes);
    return fail(ErrorCode::kOutOfRange, "{} bytes at {:#x}, whose allocation has {} left", bytes,
                address, available);
  }
  return found;
}

Result<std::shared_ptr<GpuMemory>> borrow_gpu_memory(std::uint64_t address, std::uint64_t bytes,
                                                     int gpu) {
  if (bytes == 0) return fail(ErrorCode::kInvalidArgument, "0 bytes of GPU memory asked");
  const auto found = describe_gpu_address(address, bytes);
  if (!found) return tl::unexpected(found.error());
  if (gpu != -1 && found->gpu != gpu)
    return fail(ErrorCode::kInvalidArgument, "the memory at {:#x} lies on GPU {}, not on GPU {}",
                address, found->gpu, gpu);
  GpuScope scope(found->gpu);
  if (!scope.entered()) return tl::unexpected(scope.entered().error());
  return std::make_shared<gpu::BorrowedMemory>(*found, address, bytes);
}

Result<void> read_gpu_memory(int gpu, std::span<std::byte> into, std::uint64_t address) {
  GpuScope scope(gpu);
  if (!scope.entered()) return scope.entered();
  return gpu::check_cuda(
      cudaMemcpy(into.data(), gpu::pointer(address), into.size(), cudaMemcpyDeviceToHost),
      "reading GPU memory");
}

Result<void> write_gpu_memory(int gpu, std::uint64_t address, std::span<const std::byte> from) {
  GpuScope scope(gpu);
  if (!scope.entered()) return scope.entered();
  // The copy returns once its bytes are on their way, and streams other than the default one would
  // not wait for them.
  cudaError_t error =
      cudaMemcpy(gpu::pointer(address), from.data(), from.size(), cudaMemcpyHostToDevice);
  if (error == cudaSuccess) error = cudaStreamSynchronize(nullptr);
  return gpu::check_cuda(error, "writing GPU memory");
}

}  // namespace penstock
