#include "actors/node/gpu_device.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/staging/gpu_slot_mover.hpp"

namespace penstock {
namespace {

/// The region's memory as kernels of `gpu` reach it. Pins host memory the first time: the copier's
/// thread.
Result<GpuCopySide> side_of(Region& region, int gpu) {
  GpuCopySide side;
  side.memory = region.memory;
  if (region.on_gpu()) return side;
  if (!region.pinned) {
    auto pinned = pin_memory(region.memory, gpu);
    if (!pinned)
      return fail(pinned.error().code, "region '{}' cannot be pinned for a kernel: {}", region.name,
                  pinned.error().message);
    region.pinned = std::move(*pinned);
  }
  side.pinned = std::static_pointer_cast<PinnedMemory>(region.pinned);
  return side;
}

}  // namespace

Result<void> make_movable(LocalDevice& device, int gpu) {
  if (!device.gpu_copier) device.gpu_copier = std::make_unique<GpuCopier>("ps-gpu-" + device.name);
  if (!device.staging || device.movable_gpus.contains(gpu)) return {};
  if (!device.pinned_staging) {
    auto pinned = pin_memory(device.staging->region()->memory, gpu);
    if (!pinned)
      return fail(pinned.error().code, "staging memory of {}: {}", device.name,
                  pinned.error().message);
    device.pinned_staging = std::move(*pinned);
  }
  auto mover = GpuSlotMover::make(gpu, device.pinned_staging);
  if (!mover)
    return fail(mover.error().code, "{}: GPU {}: {}", device.name, gpu, mover.error().message);
  device.poller->push(UseMover{gpu, std::shared_ptr<SlotMover>(std::move(*mover))});
  device.movable_gpus.insert(gpu);
  return {};
}

bool is_on_gpus(const CopyTask& task) {
  return (*task.source)->on_gpu() && (*task.destination)->on_gpu();
}

bool needs_kernel(const CopyTask& task) {
  return (*task.source)->on_gpu() || (*task.destination)->on_gpu();
}

void start_kernel_copy(LocalDevice& device, const CopyTask& task,
                       std::function<void(Result<std::uint64_t>)> ended) {
  const int gpu = std::max((*task.source)->memory->gpu(), (*task.destination)->memory->gpu());
  auto from = side_of(*task.source->region(), gpu);
  if (!from) return ended(tl::unexpected(from.error()));
  auto to = side_of(*task.destination->region(), gpu);
  if (!to) return ended(tl::unexpected(to.error()));
  if (!device.gpu_copier)
    return ended(
        fail(ErrorCode::kInternal, "{}: a kernel is wanted, and no GPU was prepared", device.name));
  GpuCopy copy;
  copy.plan = task.plan;
  copy.from = std::move(*from);
  copy.to = std::move(*to);
  copy.stop = task.stop;
  copy.after = task.start_after;
  copy.record = task.record_event;
  // The regions stay in use until nothing runs on them any more.
  copy.done = [source = task.source, destination = task.destination,
               ended = std::move(ended)](Result<std::uint64_t> bytes) { ended(std::move(bytes)); };
  device.gpu_copier->submit(std::move(copy));
}

void make_visible(const Region& region) {
  if (auto visible = penstock::make_visible(region.memory->gpu()); !visible)
    spdlog::error("region '{}': {}", region.name, visible.error().message);
}

Result<std::shared_ptr<GpuEvent>> open_client_event(int gpu, const std::string& handle) {
  GpuEventHandle event;
  std::memcpy(event.handle.data(), handle.data(), std::min(handle.size(), event.handle.size()));
  return import_gpu_event(gpu, event);
}

}  // namespace penstock
