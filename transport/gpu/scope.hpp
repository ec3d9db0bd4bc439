// Which GPU a thread works with. CUDA keeps that per thread, and a thread that never said it works
// with GPU 0 or fails; so everything in this folder says it first.
#pragma once

#include "transport/error.hpp"

namespace penstock {

/// While it lives, `gpu` and its primary context are current on the calling thread; then again what
/// was before. Costs tens of nanoseconds; the very first one of a GPU makes its context (some
/// 100 ms and some 500 MB of its memory).
class GpuScope {
 public:
  explicit GpuScope(int gpu);
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;
  ~GpuScope();
  /// kUnsupported (no CUDA, no driver), kNotFound (no such GPU), kProvider (the context is broken
  /// or could not be made).
  const Result<void>& entered() const { return entered_; }

 private:
  Result<void> entered_;
  [[maybe_unused]] void* before_ = nullptr;  // CUcontext; nothing where built without CUDA
  [[maybe_unused]] bool restores_ = false;
};

/// The same for good: threads that do nothing else with CUDA save the way back.
Result<void> enter_gpu(int gpu);

/// Waits for everything that this process has begun on the GPU, and reports its errors. Blocks: not
/// for pollers.
Result<void> synchronise_gpu(int gpu);

}  // namespace penstock
