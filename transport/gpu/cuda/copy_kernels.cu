#include <algorithm>

#include "transport/gpu/cuda/copy_kernels.hpp"
#include "transport/gpu/cuda/copy_tile.cuh"

namespace penstock::gpu {
namespace {

constexpr unsigned kMostWarps = 16;

__device__ __forceinline__ std::uint32_t divide(std::uint32_t value, const Divider& by) {
  return (__umulhi(value, by.magic) + value) >> by.shift;
}

struct Split {
  std::uint32_t quotient;
  std::uint32_t rest;
};

__device__ __forceinline__ Split split(std::uint32_t value, const Divider& by) {
  const std::uint32_t quotient = divide(value, by);
  return {quotient, value - quotient * by.divisor};
}

/// Where a whole element lies.
struct Placed {
  const Bytes* from;
  Bytes* to;
  std::uint64_t length;
};

// A list says what has to be fetched for an element, and what it means. They are two steps so that
// the next tile's entry is on its way while this tile is copied.

struct PieceFetch {
  std::uint64_t source_offset;
  std::uint64_t destination_offset;
  std::uint64_t length;
};

__device__ __forceinline__ PieceFetch fetch(const PieceList& list, std::uint32_t element) {
  const PieceEntry* entry = list.pieces + element;
  return {entry->source_offset, entry->destination_offset, entry->length};
}

__device__ __forceinline__ Placed place(const PieceList& list, const PieceFetch& piece) {
  return {reinterpret_cast<const Bytes*>(list.from + piece.source_offset),
          reinterpret_cast<Bytes*>(list.to + piece.destination_offset), piece.length};
}

struct PageFetch {
  std::uint32_t source_page;
  std::uint32_t destination_page;
  std::uint32_t row;
  std::uint64_t source_base;
  std::uint64_t destination_base;
};

__device__ __forceinline__ PageFetch fetch(const PageList& list, std::uint32_t index) {
  std::uint32_t row;
  std::uint32_t page;
  std::uint32_t base;
  if (list.wide) {
    const std::uint64_t element = list.first + index;
    const std::uint64_t entry = element / list.rows.divisor;
    row = static_cast<std::uint32_t>(element % list.rows.divisor);
    base = static_cast<std::uint32_t>(entry / list.pages.divisor);
    page = static_cast<std::uint32_t>(entry % list.pages.divisor);
  } else {
    const Split entry = split(static_cast<std::uint32_t>(list.first) + index, list.rows);
    const Split pair = split(entry.quotient, list.pages);
    row = entry.rest;
    base = pair.quotient;
    page = pair.rest;
  }
  PageFetch fetched{list.source_pages[page], list.destination_pages[page], row, 0, 0};
  if (list.bases != nullptr) {
    fetched.source_base = list.bases[2 * base];
    fetched.destination_base = list.bases[2 * base + 1];
  }
  return fetched;
}

__device__ __forceinline__ Placed place(const PageList& list, const PageFetch& page) {
  return {reinterpret_cast<const Bytes*>(list.from + page.source_base +
                                         page.source_page * list.source_stride +
                                         page.row * list.source_pitch),
          reinterpret_cast<Bytes*>(list.to + page.destination_base +
                                   page.destination_page * list.destination_stride +
                                   page.row * list.destination_pitch),
          list.row_bytes};
}

/// The last block to come here tells the host. What all threads wrote before is visible to the
/// processor, to cards and to other GPUs when the flag is: each block's writes to the block that
/// comes last (at the scope of the GPU, or of the system where they went to the host), and by its
/// fence to everybody.
__device__ __forceinline__ void signal(const DoneSignal& done) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (done.fence_each_block)
    __threadfence_system();
  else
    __threadfence();
  if (atomicAdd(done.blocks_done, 1u) + 1 != gridDim.x) return;
  *done.blocks_done = 0;  // for the next launch of this stream
  __threadfence_system();
  *reinterpret_cast<volatile std::uint64_t*>(done.flag) = done.number;
}

template <bool kAligned>
__device__ __forceinline__ void copy_part(const Placed& element, std::uint32_t part,
                                          std::uint32_t tile_bytes, std::uint32_t lane) {
  if (overlap(element.to, element.from, element.length)) {
    if (part != 0) return;
    if constexpr (kAligned)
      move_overlapping(reinterpret_cast<uint4*>(element.to),
                       reinterpret_cast<const uint4*>(element.from), element.length / kVector,
                       lane);
    else
      move_overlapping(element.to, element.from, element.length, lane);
    return;
  }
  const std::uint64_t start = static_cast<std::uint64_t>(part) * tile_bytes;
  if (start >= element.length) return;
  const std::uint64_t left = element.length - start;
  const std::uint32_t length = left < tile_bytes ? static_cast<std::uint32_t>(left) : tile_bytes;
  if constexpr (kAligned)
    copy_vectors<8>(reinterpret_cast<uint4*>(element.to + start),
                    reinterpret_cast<const uint4*>(element.from + start), length / kVector, lane);
  else
    copy_bytes(element.to + start, element.from + start, length, lane);
}

// Neighbouring tiles go to different blocks, so that the last ones are spread evenly.
template <class List, bool kAligned>
__global__ void __launch_bounds__(kMostWarps* kLanes, 1)
    copy_kernel(const __grid_constant__ List list, const __grid_constant__ DoneSignal done) {
  const std::uint32_t lane = threadIdx.x % kLanes;
  const std::uint32_t step = gridDim.x * (blockDim.x / kLanes);
  std::uint32_t tile = blockIdx.x + gridDim.x * (threadIdx.x / kLanes);
  if (tile < list.shape.tiles) {
    Split at = split(tile, list.shape.tiles_per_element);
    auto fetched = fetch(list, at.quotient);
    for (;;) {
      const Placed element = place(list, fetched);
      const std::uint32_t part = at.rest;
      tile += step;
      const bool more = tile < list.shape.tiles;
      if (more) {
        at = split(tile, list.shape.tiles_per_element);
        fetched = fetch(list, at.quotient);
      }
      copy_part<kAligned>(element, part, list.shape.tile_bytes, lane);
      if (!more) break;
    }
  }
  signal(done);
}

template <class List>
cudaError_t launch(const List& list, Grid grid, const DoneSignal& done, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.stream = stream;
  return list.aligned ? cudaLaunchKernelEx(&config, copy_kernel<List, true>, list, done)
                      : cudaLaunchKernelEx(&config, copy_kernel<List, false>, list, done);
}

}  // namespace

Divider Divider::by(std::uint32_t divisor) {
  Divider made;
  made.divisor = divisor;
  while ((std::uint64_t{1} << made.shift) < divisor) ++made.shift;
  const std::uint64_t power = (std::uint64_t{1} << made.shift) - divisor;
  made.magic = static_cast<std::uint32_t>((power << 32) / divisor + 1);
  return made;
}

TileShape shape_for(std::uint32_t elements, std::uint64_t element_bytes, std::uint32_t tile_bytes) {
  constexpr std::uint64_t kWhole = 512;  // a warp's worth of vectors
  TileShape shape;
  const std::uint64_t cuts =
      std::max<std::uint64_t>(1, (element_bytes + tile_bytes - 1) / tile_bytes);
  const std::uint64_t even = (element_bytes + cuts - 1) / cuts;
  shape.tile_bytes = static_cast<std::uint32_t>((even + kWhole - 1) / kWhole * kWhole);
  shape.tiles_per_element = Divider::by(static_cast<std::uint32_t>(cuts));
  shape.tiles = static_cast<std::uint32_t>(elements * cuts);
  return shape;
}

Grid whole_gpu(std::uint32_t tiles, unsigned multiprocessors) {
  constexpr unsigned kWarps = 8;
  const unsigned warps = std::clamp(tiles / std::max(1u, multiprocessors), 1u, kWarps);
  return {std::max(1u, (tiles + warps - 1) / warps), warps * kLanes};
}

Grid part_of_gpu(std::uint32_t tiles, unsigned multiprocessors) {
  multiprocessors = std::max(1u, multiprocessors);
  const unsigned warps =
      std::clamp((tiles + multiprocessors - 1) / multiprocessors, 1u, kMostWarps);
  return {std::clamp((tiles + warps - 1) / warps, 1u, multiprocessors), warps * kLanes};
}

cudaError_t launch_copy(const PieceList& list, Grid grid, const DoneSignal& done,
                        cudaStream_t stream) {
  return launch(list, grid, done, stream);
}

cudaError_t launch_copy(const PageList& list, Grid grid, const DoneSignal& done,
                        cudaStream_t stream) {
  return launch(list, grid, done, stream);
}

}  // namespace penstock::gpu
