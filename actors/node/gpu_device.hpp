// What a device does with memory of GPUs. Nothing of it costs a node that has none.
#pragma once

#include "actors/device/outbound.hpp"
#include "actors/local_device.hpp"

namespace penstock {

/// Before the first region on this GPU is published: makes the device's copier of GPU memory, and
/// its poller able to move pages of the GPU to and from its staging memory, which is pinned for
/// that. On the registrar's thread; the first time takes some 100 ms. Devices without staging
/// memory stay without.
Result<void> make_movable(LocalDevice& device, int gpu);

/// Whether a copy on this node needs a kernel.
bool needs_kernel(const CopyTask& task);
/// Whether it needs nothing that blocks: no host memory that may have to be pinned.
bool is_on_gpus(const CopyTask& task);
/// Begins such a copy. On the copier's thread, or any where it does not block; `ended` is called on
/// another, when nothing of the copy runs any more.
void start_kernel_copy(LocalDevice& device, const CopyTask& task,
                       std::function<void(Result<std::uint64_t> bytes)> ended);

/// A CUDA event of a client's, by its handle.
Result<std::shared_ptr<GpuEvent>> open_client_event(int gpu, const std::string& handle);

/// What cards wrote to a region on a GPU becomes visible to its kernels.
void make_visible(const Region& region);

}  // namespace penstock
