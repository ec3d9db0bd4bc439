// A region as the poller needs it: memory plus one registration per card of the device.
#pragma once

#include <memory>
#include <vector>

#include "transport/fabric/nic.hpp"
#include "transport/memory/region_memory.hpp"

namespace penstock {

struct RegisteredMemory {
  std::shared_ptr<RegionMemory> memory;
  /// Indexed by the card's place in its device.
  std::vector<std::shared_ptr<MemoryRegistration>> registrations;
};

/// Registers `memory` with a card, wherever it lies.
inline Result<std::unique_ptr<MemoryRegistration>> register_with(Nic& nic,
                                                                 const RegionMemory& memory) {
  return memory.gpu() < 0 ? nic.register_memory(memory.bytes())
                          : nic.register_gpu_memory(memory.bytes(), memory.gpu());
}

}  // namespace penstock
