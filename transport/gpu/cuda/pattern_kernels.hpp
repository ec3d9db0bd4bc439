// fill and digest as kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "transport/gpu/cuda/xxh3.hpp"

namespace penstock::gpu {

/// Bytes [0, length) at `memory` become the pattern of positions [position, position + length).
cudaError_t launch_fill(std::uint64_t memory, std::uint64_t length, std::uint64_t seed,
                        std::uint64_t position, cudaStream_t stream);

/// digests[i] of the page at memory + offsets[i]. Both arrays are where kernels reach them.
cudaError_t launch_digest(std::uint64_t memory, std::uint64_t page_bytes,
                          const std::uint64_t* offsets, std::uint64_t count, std::uint64_t* digests,
                          const xxh3::Secret& secret, cudaStream_t stream);

}  // namespace penstock::gpu
