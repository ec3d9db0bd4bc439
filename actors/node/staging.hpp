// A device's staging memory: slots that packed writes leave from and land in.
#pragma once

#include <cstdint>

#include "actors/local_device.hpp"

namespace penstock {

/// What one packed write carries at most. Long enough that its own cost is small beside its bytes;
/// short enough to be copied in well under a millisecond, which is what urgent work waits for. The
/// rest is room for the index beside pages that divide 256 KiB.
inline constexpr std::uint64_t kStagingSlotBytes = 256 * 1024 + 4096;

/// Makes and registers `bytes` of staging memory for a device: a fifth of the slots to send from,
/// the others to be lent to peers. Fewer than five slots: none, and the device packs nothing.
Result<void> open_staging(LocalDevice& device, std::uint64_t bytes);

/// Makes, registers and publishes the device's scratch region, which peers warm up with.
Result<void> open_scratch(const LocalDevice& device, RegionTable& regions);

/// Nanoseconds a byte for copying small pages from and to memory that is not in the cache, as a
/// packed transfer does. Measured in the device's staging memory; the shortest of a few rounds.
double measure_copies(const LocalDevice& device);

}  // namespace penstock
