// Order with the kernels of a model: CUDA events of other processes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/error.hpp"

namespace penstock {

/// cudaIpcEventHandle_t.
struct GpuEventHandle {
  static constexpr std::size_t kBytes = 64;
  std::array<std::byte, kBytes> handle{};
};

/// An event that copies wait for or record. Any thread; keep it until they are done.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
  virtual int gpu() const = 0;
  /// For other processes: only of events made here.
  virtual Result<GpuEventHandle> ipc_handle() const = 0;
  /// Whether what was recorded last is done; true when nothing was.
  virtual Result<bool> done() const = 0;
  /// cudaEvent_t, for code that has streams of its own.
  virtual void* native() const = 0;
};

/// One that other processes can open.
Result<std::shared_ptr<GpuEvent>> make_gpu_event(int gpu);
/// Opens another process's. kInvalidArgument: no event of that GPU, or of this very process.
Result<std::shared_ptr<GpuEvent>> import_gpu_event(int gpu, const GpuEventHandle& handle);

}  // namespace penstock
