#include "transport/gpu/inventory.hpp"

#include <algorithm>

namespace penstock {

const char* name_of(RdmaOrdering ordering) {
  switch (ordering) {
    case RdmaOrdering::kNone:
      return "none";
    case RdmaOrdering::kOwner:
      return "owner";
    case RdmaOrdering::kAllDevices:
      return "all devices";
  }
  return "unknown";
}

const Gpu* GpuInventory::find(const std::string& bus_id) const {
  const auto found =
      std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.bus_id == bus_id; });
  return found == gpus.end() ? nullptr : &*found;
}

Result<const Gpu*> require_gpu(int index) {
  const GpuInventory& inventory = gpu_inventory();
  if (inventory.gpus.empty())
    return fail(ErrorCode::kUnsupported, "GPU {} asked, but this process has none: {}", index,
                inventory.why_none);
  if (index < 0 || static_cast<std::size_t>(index) >= inventory.gpus.size())
    return fail(ErrorCode::kNotFound, "no GPU {}: this process sees {} (CUDA_VISIBLE_DEVICES={})",
                index, inventory.gpus.size(),
                inventory.visible_devices.empty() ? "unset" : inventory.visible_devices);
  return &inventory.gpus[static_cast<std::size_t>(index)];
}

}  // namespace penstock
