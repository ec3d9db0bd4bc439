// What the driver knows of an address, and what all kinds of GPU memory share.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "transport/gpu/cuda/driver.hpp"
#include "transport/gpu/gpu_memory.hpp"
#include "transport/gpu/scope.hpp"

namespace penstock::gpu {

/// What CUDA wants as a pointer. NOLINTNEXTLINE(performance-no-int-to-ptr)
inline void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

/// One attribute of an address; `absent` when the driver knows none.
template <class T>
T pointer_attribute(CUpointer_attribute which, std::uint64_t address, T absent) {
  T value = absent;
  if (!driver() || driver()->cuPointerGetAttribute(&value, which, address) != CUDA_SUCCESS)
    return absent;
  return value;
}

/// 0: the address belongs to no allocation.
inline std::uint64_t buffer_id_of(std::uint64_t address) {
  return pointer_attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address, 0);
}

/// What all of them answer alike.
class Allocation : public GpuMemory {
 public:
  Allocation(GpuMemoryOrigin origin, int gpu, std::uint64_t address, std::uint64_t bytes);
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  GpuMemoryOrigin origin() const final { return origin_; }
  int gpu() const final { return gpu_; }
  std::span<std::byte> bytes() const final { return bytes_; }
  const std::string& shared_name() const final { return no_name_; }
  std::uint64_t buffer_id() const final { return buffer_id_; }
  Result<GpuIpcHandle> ipc_handle() const override;
  Result<GpuDescriptorHandle> descriptor() const override;
  Result<DmaBuf> dma_buf() const override;
  Result<void> check() const override { return {}; }
  Result<std::uint64_t> address_on(int gpu) const override;

 protected:
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(bytes_.data()); }
  /// ipc_handle() and descriptor() for memory that is this process's own.
  Result<GpuIpcHandle> export_ipc() const;
  Result<GpuDescriptorHandle> export_descriptor() const;

 private:
  GpuMemoryOrigin origin_;
  int gpu_;
  std::span<std::byte> bytes_;
  std::uint64_t buffer_id_;
  std::string no_name_;
};

/// Virtual memory as mapped into this process: the whole of one allocation. Unmapped at the end.
class VirtualMapping {
 public:
  VirtualMapping() = default;
  VirtualMapping(VirtualMapping&& other) noexcept
      : address_(std::exchange(other.address_, 0)),
        bytes_(other.bytes_),
        mapped_(std::exchange(other.mapped_, false)) {}
  VirtualMapping& operator=(VirtualMapping&&) = delete;
  ~VirtualMapping();
  /// Maps `handle` for `gpu` and the GPUs that reach it. The mapping keeps the memory alive; the
  /// handle may be released.
  static Result<VirtualMapping> map(int gpu, CUmemGenericAllocationHandle handle,
                                    std::uint64_t bytes);
  std::uint64_t address() const { return address_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  CUdeviceptr address_ = 0;
  std::uint64_t bytes_ = 0;
  bool mapped_ = false;
};

/// How virtual memory of a GPU is asked for: exportable as a descriptor.
CUmemAllocationProp virtual_properties(int gpu);
/// Sizes are multiples of this.
Result<std::uint64_t> virtual_granularity(int gpu);

}  // namespace penstock::gpu
