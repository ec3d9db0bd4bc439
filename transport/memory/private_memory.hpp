// Host memory of our own, which no other process maps: staging buffers.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/error.hpp"
#include "transport/memory/region_memory.hpp"

namespace penstock {

/// `size` bytes on `numa_node` (-1: anywhere), on transparent huge pages where the kernel has them,
/// touched before return. Errors: kInvalidArgument, kResourceExhausted.
Result<std::shared_ptr<RegionMemory>> allocate_private_memory(std::uint64_t size, int numa_node);

}  // namespace penstock
