// Copies of many small pieces by one kernel: between memories of one GPU, peer GPUs, and pinned
// host memory.
//
// A call per page costs a GPU 2 to 5 us whatever the page: a thousandth of what its memory does.
// Here a launch takes a whole list of pieces, and any size and alignment. Starting costs the caller
// some microseconds and never waits for the GPU; asking whether it is done reads a word of host
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/error.hpp"
#include "transport/gpu/event.hpp"
#include "transport/memory/region_memory.hpp"
#include "transport/plan/layout.hpp"

namespace penstock {

/// One contiguous piece, relative to the two base addresses of its copy. Laid out as a Range is.
struct CopyPiece {
  std::uint64_t source_offset = 0;
  std::uint64_t destination_offset = 0;
  std::uint64_t length = 0;
};
static_assert(sizeof(CopyPiece) == sizeof(Range));

/// Where a copy reads and writes: addresses that the mover's GPU reaches. Of a region on a GPU:
/// place_on(); of host memory: PinnedMemory::device_address(). `gpu` is where the memory lies, -1
/// for pinned host memory. The caller has checked that all pieces lie inside both memories.
struct CopyPlace {
  std::uint64_t address = 0;
  int gpu = -1;
};

/// What a copy waits for and signals. The events must outlive it.
struct CopyOrder {
  const GpuEvent* after = nullptr;   // starts when what was recorded there is done
  const GpuEvent* record = nullptr;  // recorded behind the copy
};

/// Names one started copy.
struct CopyTicket {
  std::uint32_t lane = 0;
  std::uint64_t number = 0;  // counts up per lane from 1
};

enum class CopyState : unsigned char { kRunning, kDone };

/// The lists of one transfer, ready for kernels. Immutable; keep it until its copies are done.
class GpuPlan {
 public:
  virtual ~GpuPlan() = default;
  /// What slices of it are counted in: rows of pages in the layout's order, or ranges cut to at
  /// most kRangeBytes. Not the chunks of a Plan, which are merged.
  virtual std::uint64_t elements() const = 0;
  virtual std::uint64_t bytes() const = 0;
  /// Bytes of elements [first, first + count).
  virtual std::uint64_t bytes(std::uint64_t first, std::uint64_t count) const = 0;
  /// How many elements from `first` on have at least `bytes` together (or are all that is left).
  virtual std::uint64_t elements_of(std::uint64_t first, std::uint64_t bytes) const = 0;

  static constexpr std::uint64_t kRangeBytes = 64 * 1024;
};

struct PageMoverOptions {
  /// Streams. Copies of one lane run in order, those of different lanes at the same time: a lane
  /// per peer, or per slot in flight.
  std::uint32_t lanes = 4;
  /// Multiprocessors that a copy leaves to the model. Copies on the GPU or to peers use all others.
  int leave_multiprocessors = 0;
  /// Multiprocessors that a copy from or to host memory uses: a PCIe link is full with few.
  int host_multiprocessors = 8;
  /// Copies under way per lane at most; then start() says kBusy.
  std::uint32_t depth = 64;
  /// Room for the lists of pieces under way, in pinned host memory, shared out to the lanes.
  std::uint64_t list_bytes = 4u << 20;
  /// Room for the lists of plans, in pinned host memory and as much in the GPU's: 8 bytes a page,
  /// 24 a range.
  std::uint64_t plan_bytes = 64u << 20;
  /// 0: the GPU's default; a lower number goes before a model's kernels
  /// (cudaStreamCreateWithPriority).
  int priority = 0;
};

/// One per GPU and thread: only one thread at a time may call it. Destroying it waits for its
/// copies.
///
/// Pieces of one copy that overlap each other in the destination, or whose source is another's
/// destination, leave undefined bytes there. A piece that overlaps itself (source and destination
/// in one memory, closer than its length) is moved as by memmove.
class PageMover {
 public:
  /// Blocks while the GPU's context is made. `gpu` runs the kernels: for a copy between two GPUs
  /// either of them (the destination's is the faster choice over NVLink for reads, the source's for
  /// writes; the difference is small). Errors: as GpuScope; kResourceExhausted.
  static Result<std::unique_ptr<PageMover>> make(int gpu, const PageMoverOptions& options = {});
  virtual ~PageMover() = default;

  virtual int gpu() const = 0;
  virtual const PageMoverOptions& options() const = 0;

  /// Starts one kernel that copies all pieces. The span may be reused at return. Errors: kBusy (the
  /// lane's depth or the room for lists is used up: poll and ask again), kInvalidArgument (no such
  /// lane, a list longer than the room, memory of a GPU that this one cannot reach), kProvider (the
  /// GPU or its context is broken: nothing works on it any more). An empty list is a copy, too.
  virtual Result<CopyTicket> start(std::span<const CopyPiece> pieces, CopyPlace from, CopyPlace to,
                                   std::uint32_t lane, const CopyOrder& order = {}) = 0;

  /// Makes the lists of a layout ready (one copy of them, no unpacking: 1 ns a page). The layout
  /// was checked by Plan::make. Does not block for the GPU; kResourceExhausted when no memory is
  /// left for the lists (poll, let plans go, ask again).
  virtual Result<std::shared_ptr<const GpuPlan>> prepare(const Layout& layout) = 0;
  /// Starts one kernel that copies the plan's elements [first, first + count).
  virtual Result<CopyTicket> start(const GpuPlan& plan, std::uint64_t first, std::uint64_t count,
                                   CopyPlace from, CopyPlace to, std::uint32_t lane,
                                   const CopyOrder& order = {}) = 0;

  /// Records `event` behind what the lane has started (at the end of a transfer that other hands
  /// wrote), or makes the lane's next copies wait for it.
  virtual Result<void> record(const GpuEvent& event, std::uint32_t lane) = 0;
  virtual Result<void> wait_for(const GpuEvent& event, std::uint32_t lane) = 0;

  /// Reads one word of host memory, and now and then asks the driver for errors. kDone: every byte
  /// is where it belongs, to be seen by the processor, by kernels started from now on and by cards.
  /// After an error (kProvider) all copies of the mover have failed.
  virtual Result<CopyState> poll(const CopyTicket& ticket) = 0;
  /// Copies started and not yet seen done, over all lanes.
  virtual std::size_t running() const = 0;
};

/// Where a mover on `gpu` finds a region's memory (kCuda). The first call for another process's
/// memory on a peer maps it, which blocks; later ones cost nothing. Errors: kInvalidArgument (host
/// memory; a GPU that cannot reach it).
Result<CopyPlace> place_on(const RegionMemory& memory, int gpu);

/// Whether kernels of `gpu` can reach memory of `other` (the same, or a peer).
bool gpu_reaches(int gpu, int other);

/// Makes what cards have written to the GPU's memory (GPUDirect RDMA) visible to kernels that start
/// from now on: to be called between the last completion and `done`. Does nothing where the
/// hardware keeps that order; flushes (some microseconds) where it does not.
Result<void> make_visible(int gpu);

}  // namespace penstock
