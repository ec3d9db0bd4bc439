#include "client/gpu/mapped_region.hpp"

#include <algorithm>
#include <string>

#include "client/cpp/error.hpp"
#include "transport/gpu/inventory.hpp"

namespace penstock::client {

MappedRegion MappedRegion::open(const RegionInfo& region) {
  GpuIpcHandle handle;
  if (region.ipc_handle.size() != handle.handle.size())
    throw Error("UNSUPPORTED", "region '" + region.name + "' has no handle that could be mapped");
  std::ranges::copy(region.ipc_handle, handle.handle.begin());
  handle.offset = region.ipc_offset;
  const Gpu* gpu = gpu_inventory().find(region.gpu_bus);
  if (gpu == nullptr)
    throw Error("UNSUPPORTED", "GPU " + region.gpu_bus + " of region '" + region.name +
                                   "' is not here: " + gpu_inventory().why_none);
  auto memory = import_gpu_memory(gpu->index, handle, region.bytes);
  if (!memory) throw Error(std::string(name_of(memory.error().code)), memory.error().message);
  return MappedRegion(std::move(*memory));
}

std::uint64_t MappedRegion::address() const {
  return reinterpret_cast<std::uint64_t>(memory_->bytes().data());
}

std::uint64_t MappedRegion::bytes() const { return memory_->bytes().size(); }

}  // namespace penstock::client
