// Host memory that kernels and copy engines of the GPUs reach: pinned and mapped.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/error.hpp"
#include "transport/memory/region_memory.hpp"

namespace penstock {

/// Host memory of somebody else, pinned while this lives. kind() is kHost, gpu() -1, bytes() the
/// addresses of the processor, as before.
class PinnedMemory {
 public:
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  virtual ~PinnedMemory() = default;
  const std::shared_ptr<RegionMemory>& memory() const { return memory_; }
  /// Under which every GPU reaches memory()->bytes().data().
  std::uint64_t device_address() const { return device_address_; }

 protected:
  PinnedMemory(std::shared_ptr<RegionMemory> memory, std::uint64_t device_address)
      : memory_(std::move(memory)), device_address_(device_address) {}

 private:
  std::shared_ptr<RegionMemory> memory_;
  std::uint64_t device_address_;
};

/// Pins `memory` (any host memory: private, a segment of /dev/shm, a file on huge pages; page
/// aligned), by way of `gpu`; the others reach it, too. Takes 0.1 to 0.5 s a GiB: not on a poller.
/// Errors: kInvalidArgument (GPU memory; not page aligned), kAlreadyExists (pinned already),
/// kResourceExhausted, kUnsupported.
Result<std::shared_ptr<PinnedMemory>> pin_memory(std::shared_ptr<RegionMemory> memory, int gpu);

/// Staging memory: allocate_private_memory() on `numa_node`, pinned.
Result<std::shared_ptr<PinnedMemory>> allocate_pinned_memory(std::uint64_t bytes, int numa_node,
                                                             int gpu);

}  // namespace penstock
