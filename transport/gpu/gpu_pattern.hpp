// fill and digest where the bytes are: the same values as memory/pattern.hpp gives for host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/error.hpp"
#include "transport/memory/region_memory.hpp"

namespace penstock {

/// fill_pattern() on [offset, offset + length) of GPU memory, positions counted from the memory's
/// start. Blocks until it is written.
Result<void> fill_gpu_pattern(const RegionMemory& memory, std::uint64_t offset,
                              std::uint64_t length, std::uint64_t seed);

/// digest_page() of pages of `page_bytes` at each of `offsets`; as many results. Blocks.
Result<void> digest_gpu_pages(const RegionMemory& memory, std::uint64_t page_bytes,
                              std::span<const std::uint64_t> offsets,
                              std::span<std::uint64_t> digests);

}  // namespace penstock
