// Memory of a GPU as regions: our own that others map, and others' that we map.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/error.hpp"
#include "transport/memory/region_memory.hpp"

namespace penstock {

/// What names memory made by cudaMalloc to another process of the same node (cudaIpcMemHandle_t):
/// the handle is that of the whole allocation, `offset` is where the bytes meant start in it.
struct GpuIpcHandle {
  static constexpr std::size_t kBytes = 64;
  std::array<std::byte, kBytes> handle{};
  std::uint64_t offset = 0;
};

/// A file descriptor that closes itself.
class GpuDescriptor {
 public:
  GpuDescriptor() = default;
  explicit GpuDescriptor(int fd) : fd_(fd) {}
  GpuDescriptor(GpuDescriptor&& other) noexcept : fd_(other.release()) {}
  GpuDescriptor& operator=(GpuDescriptor&& other) noexcept;
  ~GpuDescriptor();
  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_ = -1;
};

/// What names memory made by cuMemCreate: a descriptor of the whole allocation, to be passed over a
/// Unix socket, and where in it the bytes meant start.
struct GpuDescriptorHandle {
  GpuDescriptor fd;
  std::uint64_t allocation_bytes = 0;
  std::uint64_t offset = 0;
};

/// How GPU memory came to be, which decides how others can map it.
enum class GpuMemoryOrigin : unsigned char {
  kAllocated,      // cudaMalloc by this process
  kVirtual,        // cuMemCreate by this process
  kIpcImport,      // another process's cudaMalloc
  kVirtualImport,  // another process's cuMemCreate
  kBorrowed,       // an address of this process that somebody else frees
};
const char* name_of(GpuMemoryOrigin origin);

/// kind() is kCuda, gpu() >= 0, shared_name() is "". Unmapped or freed when the last holder lets
/// go: keep it until nothing runs on it any more. Any thread.
class GpuMemory : public RegionMemory {
 public:
  MemoryKind kind() const override { return MemoryKind::kCuda; }
  virtual GpuMemoryOrigin origin() const = 0;
  /// For another process of this node. kUnsupported for anything but kAllocated (an import cannot
  /// be passed on) and kBorrowed memory that cudaMalloc made.
  virtual Result<GpuIpcHandle> ipc_handle() const = 0;
  /// For another process of this node. kUnsupported for anything but kVirtual and kBorrowed memory
  /// that cuMemCreate made for export.
  virtual Result<GpuDescriptorHandle> descriptor() const = 0;
  /// A dma-buf that a card registers (FI_MR_DMABUF), and where bytes() starts in it. kUnsupported
  /// where the GPU or the driver has none.
  struct DmaBuf {
    GpuDescriptor fd;
    std::uint64_t offset = 0;
  };
  virtual Result<DmaBuf> dma_buf() const = 0;
  /// Under which kernels of `gpu`, this one or a peer, reach bytes().data(). Another process's
  /// memory is mapped for one GPU at a time: asked for a further one, it is mapped for that one,
  /// too, which takes a moment. kInvalidArgument: that GPU cannot reach it.
  virtual Result<std::uint64_t> address_on(int gpu) const = 0;
  /// CUDA's id of the allocation, never used twice in a process: another one at the same address
  /// has another.
  virtual std::uint64_t buffer_id() const = 0;
  /// Whether the memory is still the one that this object was made for: kStaleRegion when it was
  /// freed, or freed and another allocation took its address. Only kBorrowed memory can be.
  virtual Result<void> check() const = 0;
};

/// `bytes` on `gpu` by cudaMalloc, content undefined. Errors: kInvalidArgument (0 bytes),
/// kResourceExhausted (says how much is free), kUnsupported, kNotFound.
Result<std::shared_ptr<GpuMemory>> allocate_gpu_memory(int gpu, std::uint64_t bytes);

/// The same by virtual memory management, exported as a descriptor.
Result<std::shared_ptr<GpuMemory>> allocate_virtual_gpu_memory(int gpu, std::uint64_t bytes);

/// Maps another process's allocation. `gpu` is the one that it lies on: CUDA tells that only to its
/// owner, so a wrong one is not noticed where the GPUs reach each other, and is served over the
/// link between them. The memory stays while it is mapped here, whatever its owner does: nothing
/// else can take its place. Errors: kInvalidArgument (a handle of this very process), kNotFound (no
/// such allocation: freed since, its process gone, or on a GPU that is not reached), kOutOfRange
/// (offset + bytes reach beyond the allocation), kUnsupported.
Result<std::shared_ptr<GpuMemory>> import_gpu_memory(int gpu, const GpuIpcHandle& handle,
                                                     std::uint64_t bytes);

/// Maps a descriptor of virtual memory (cuMemExportToShareableHandle): the whole allocation of
/// `allocation_bytes`, of which `bytes` from `offset` on are the region. The descriptor is only
/// read; the caller closes it. Errors: kInvalidArgument (no such memory, memory of another GPU,
/// another size, or a dma-buf, which CUDA cannot map), kOutOfRange, kUnsupported.
Result<std::shared_ptr<GpuMemory>> import_gpu_descriptor(int gpu, int fd,
                                                         std::uint64_t allocation_bytes,
                                                         std::uint64_t offset, std::uint64_t bytes);

/// What this process knows of an address of its own.
struct GpuAddress {
  int gpu = -1;
  std::uint64_t allocation = 0;  // where its allocation starts
  std::uint64_t allocation_bytes = 0;
  std::uint64_t buffer_id = 0;
  bool virtual_memory = false;  // cuMemCreate: passed on as a descriptor
};

/// Checks that [address, address + bytes) is memory of one GPU that can be given to another
/// process. Errors: kInvalidArgument (no GPU memory: host, managed, or freed; or its context is
/// gone), kOutOfRange (longer than its allocation), kUnsupported (memory of a stream-ordered pool,
/// which can be exported only as a whole pool; virtual memory of several allocations, or not made
/// to be exported).
Result<GpuAddress> describe_gpu_address(std::uint64_t address, std::uint64_t bytes);

/// A region over an address of this process, checked as above and, when `gpu` is not -1, to lie
/// there (kInvalidArgument). Never freed by us. What a client exports from.
Result<std::shared_ptr<GpuMemory>> borrow_gpu_memory(std::uint64_t address, std::uint64_t bytes,
                                                     int gpu = -1);

/// Plain copies between host and GPU memory, for small things and tests. They block.
Result<void> read_gpu_memory(int gpu, std::span<std::byte> into, std::uint64_t address);
Result<void> write_gpu_memory(int gpu, std::uint64_t address, std::span<const std::byte> from);

}  // namespace penstock
