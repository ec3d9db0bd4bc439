// The copy kernel, as the files around it see it: what a launch is given, and how it is started.
//
// Work is cut into tiles: a row of a page or a piece of a list, or a part of it when it is long. A
// warp takes a tile, loads all of it that fits into its registers, and stores it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace penstock::gpu {

/// Division of 32-bit numbers below 2^31 by a constant of the launch, without a division.
struct Divider {
  std::uint32_t divisor = 1;
  std::uint32_t magic = 0;
  std::uint32_t shift = 0;
  static Divider by(std::uint32_t divisor);
};

/// How the last block says that all is done.
struct DoneSignal {
  std::uint32_t* blocks_done = nullptr;  // in the GPU's memory, 0 between launches
  std::uint64_t* flag = nullptr;         // in mapped host memory
  std::uint64_t number = 0;              // what is written there
  bool fence_each_block = false;         // writes go to the host
};

struct TileShape {
  std::uint32_t tiles = 0;    // of the whole launch, below 2^31
  Divider tiles_per_element;  // an element is a row or a piece
  std::uint32_t tile_bytes = 0;
};

/// As CopyPiece and Range are.
struct PieceEntry {
  std::uint64_t source_offset;
  std::uint64_t destination_offset;
  std::uint64_t length;
};

struct PieceList {
  TileShape shape;
  bool aligned = false;  // all addresses and lengths are multiples of 16
  const PieceEntry* pieces = nullptr;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

struct PageList {
  TileShape shape;
  bool aligned = false;  // all addresses and lengths are multiples of 16
  std::uint64_t row_bytes = 0;
  Divider rows;
  Divider pages;
  std::uint64_t first = 0;  // element
  bool wide = false;        // element numbers reach 2^31
  const std::uint32_t* source_pages = nullptr;
  const std::uint32_t* destination_pages = nullptr;
  const std::uint64_t* bases = nullptr;  // pairs; null: from and to are all there is
  std::uint64_t source_pitch = 0;
  std::uint64_t destination_pitch = 0;
  std::uint64_t source_stride = 0;
  std::uint64_t destination_stride = 0;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

struct Grid {
  unsigned blocks = 1;
  unsigned threads = 32;
};
/// A warp for each tile, in small blocks: the hardware hands them out, which balances best. 93 to
/// 96 percent of a contiguous copy on an H200, where blocks that stay and loop reach 91 to 93.
Grid whole_gpu(std::uint32_t tiles, unsigned multiprocessors);
/// At most one block on each of so many multiprocessors, up to 16 warps each: a full one leaves no
/// room for another there, so that the rest of the GPU stays free.
Grid part_of_gpu(std::uint32_t tiles, unsigned multiprocessors);

/// What the kernel loads and stores at once when everything is aligned to it.
inline constexpr std::uint64_t kVectorBytes = 16;

/// Rows longer than this are cut to tiles of at most this.
inline constexpr std::uint32_t kTileBytes = 8192;
/// A launch has fewer than these (`tiles` of a list, above).
inline constexpr std::uint64_t kMaxTiles = std::uint64_t{1} << 31;
/// `elements` of at most `element_bytes` each.
TileShape shape_for(std::uint32_t elements, std::uint64_t element_bytes,
                    std::uint32_t tile_bytes = kTileBytes);

cudaError_t launch_copy(const PieceList& list, Grid grid, const DoneSignal& done,
                        cudaStream_t stream);
cudaError_t launch_copy(const PageList& list, Grid grid, const DoneSignal& done,
                        cudaStream_t stream);

}  // namespace penstock::gpu
