// The GPUs that this process may use, or why there are none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/error.hpp"

namespace penstock {

/// When writes of a card into the GPU's memory (GPUDirect RDMA) are seen in order by kernels.
enum class RdmaOrdering : unsigned char {
  kNone,        // not without a flush
  kOwner,       // by kernels of the GPU written to
  kAllDevices,  // by kernels of every GPU
};
const char* name_of(RdmaOrdering ordering);

struct Gpu {
  int index = -1;      // CUDA's number in this process: among those visible, 0 first
  std::string bus_id;  // as topology/bus_id.hpp spells it; names the same GPU in every process
  std::string uuid;    // "GPU-..." as nvidia-smi prints it
  std::string name;    // "NVIDIA H200"
  std::uint64_t memory_bytes = 0;
  int multiprocessors = 0;
  int compute_major = 0;  // compute capability
  int compute_minor = 0;
  bool virtual_memory = false;  // cuMemCreate with POSIX file descriptors
  bool gpudirect_rdma = false;  // cards can reach its memory (nvidia-peermem or dma-buf)
  bool dma_buf = false;         // its memory can be exported as a dma-buf
  RdmaOrdering rdma_ordering = RdmaOrdering::kNone;
  bool rdma_flush = false;  // cuFlushGPUDirectRDMAWrites works
  std::vector<int> peers;   // indices of GPUs whose memory it can map
};

struct GpuInventory {
  std::vector<Gpu> gpus;
  /// Which CUDA version the driver speaks, "13.0"; "" without a driver.
  std::string driver_version;
  /// What the program was built with, "13.0"; "" when it was built without CUDA.
  std::string runtime_version;
  /// CUDA_VISIBLE_DEVICES as it was when CUDA started; "" when unset.
  std::string visible_devices;
  /// Why `gpus` is empty, in words for the user; "" when it is not.
  std::string why_none;

  /// Null: not there, or hidden from this process.
  const Gpu* find(const std::string& bus_id) const;
};

/// Read once, at the first call, which may take a second. Any thread. Makes no CUDA context, so a
/// service that asks and then uses no GPU costs them nothing.
const GpuInventory& gpu_inventory();

/// The GPU with this index, or an error that says why it cannot be used: kUnsupported (built
/// without CUDA, no driver, no GPU), kNotFound (no such index).
Result<const Gpu*> require_gpu(int index);

}  // namespace penstock
