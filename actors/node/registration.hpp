// A region's registrations with the cards of its device.
#pragma once

#include "actors/device/region_table.hpp"
#include "actors/local_device.hpp"

namespace penstock {

/// Registers region.memory with every card of the device, or with none: a failure on one card is
/// told by name. Twice each: a fence voids the key that peers hold, at a moment when operations of
/// ours may be using the memory too. Memory of a GPU is registered with the cards that reach it,
/// perhaps none (Region::needs_staging). May block for 100s of ms.
Result<void> register_everywhere(const LocalDevice& device, Region& region);

}  // namespace penstock
