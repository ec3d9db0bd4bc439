// The CUDA event behind a GpuEvent.
#pragma once

#include <cuda_runtime_api.h>

#include "transport/gpu/event.hpp"

namespace penstock::gpu {

inline cudaEvent_t native(const GpuEvent& event) {
  return static_cast<cudaEvent_t>(event.native());
}

}  // namespace penstock::gpu
