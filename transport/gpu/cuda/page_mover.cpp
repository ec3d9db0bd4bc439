#include "transport/gpu/page_mover.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <vector>

#include "transport/gpu/cuda/driver.hpp"
#include "transport/gpu/cuda/lane.hpp"
#include "transport/gpu/cuda/list_arena.hpp"
#include "transport/gpu/cuda/native_event.hpp"
#include "transport/gpu/cuda/prepared_plan.hpp"
#include "transport/gpu/inventory.hpp"
#include "transport/gpu/scope.hpp"

namespace penstock {
namespace gpu {
namespace {

using Clock = std::chrono::steady_clock;

/// How many polls look at the clock once, and how often the driver is then asked for errors.
constexpr std::uint32_t kPollsPerLook = 32;
constexpr auto kLookEvery = std::chrono::milliseconds(1);
/// Each lane's word has a cache line of its own.
constexpr std::uint64_t kFlagBytes = 64;

bool overlaps_itself(const CopyPiece& piece, CopyPlace from, CopyPlace to) {
  const std::uint64_t source = from.address + piece.source_offset;
  const std::uint64_t destination = to.address + piece.destination_offset;
  return (source < destination ? destination - source : source - destination) < piece.length;
}

/// Into how many a piece is cut so that many warps share it.
std::uint64_t cuts(const CopyPiece& piece, CopyPlace from, CopyPlace to) {
  if (piece.length <= GpuPlan::kRangeBytes || overlaps_itself(piece, from, to)) return 1;
  return (piece.length + GpuPlan::kRangeBytes - 1) / GpuPlan::kRangeBytes;
}

class CudaPageMover final : public PageMover {
 public:
  CudaPageMover(int gpu, const PageMoverOptions& options) : gpu_(gpu), options_(options) {}
  CudaPageMover(const CudaPageMover&) = delete;
  CudaPageMover& operator=(const CudaPageMover&) = delete;
  ~CudaPageMover() override;
  Result<void> open();

  int gpu() const override { return gpu_; }
  const PageMoverOptions& options() const override { return options_; }
  Result<CopyTicket> start(std::span<const CopyPiece> pieces, CopyPlace from, CopyPlace to,
                           std::uint32_t lane, const CopyOrder& order) override;
  Result<std::shared_ptr<const GpuPlan>> prepare(const Layout& layout) override;
  Result<CopyTicket> start(const GpuPlan& plan, std::uint64_t first, std::uint64_t count,
                           CopyPlace from, CopyPlace to, std::uint32_t lane,
                           const CopyOrder& order) override;
  Result<void> record(const GpuEvent& event, std::uint32_t lane) override;
  Result<void> wait_for(const GpuEvent& event, std::uint32_t lane) override;
  Result<CopyState> poll(const CopyTicket& ticket) override;
  std::size_t running() const override;

 private:
  Result<void> allocate();
  Result<void> make_streams();
  Result<void> warm_up();
  /// That a copy may start here now: the lane is there and has room, the places are in reach.
  Result<void> admit(std::uint32_t lane, CopyPlace from, CopyPlace to);
  Result<void> reach(CopyPlace place);
  Grid grid(const TileShape& shape, CopyPlace from, CopyPlace to) const;
  template <class List>
  Result<CopyTicket> launch(const List& list, CopyPlace from, CopyPlace to, std::uint32_t lane,
                            const CopyOrder& order);
  Result<CopyState> look_for_errors(const CopyTicket& ticket);
  /// All that follows fails with this error.
  tl::unexpected<Error> broken(cudaError_t error, const char* what);

  const int gpu_;
  const PageMoverOptions options_;
  int multiprocessors_ = 1;
  std::set<int> reached_;  // peers
  std::shared_ptr<ListArena> arena_;
  std::byte* host_ = nullptr;          // the lanes' flags, then their rings
  std::uint32_t* counters_ = nullptr;  // in the GPU's memory
  cudaStream_t upload_ = nullptr;
  std::vector<cudaStream_t> streams_;
  std::vector<Lane> lanes_;
  std::uint32_t polls_ = 0;
  Clock::time_point looked_{};
  Result<void> health_;
};

CudaPageMover::~CudaPageMover() {
  GpuScope scope(gpu_);
  if (!scope.entered()) return;
  for (cudaStream_t stream : streams_) {
    (void)cudaStreamSynchronize(stream);
    (void)cudaStreamDestroy(stream);
  }
  if (upload_ != nullptr) {
    (void)cudaStreamSynchronize(upload_);
    (void)cudaStreamDestroy(upload_);
  }
  if (counters_ != nullptr) (void)cudaFree(counters_);
  if (host_ != nullptr) (void)cudaFreeHost(host_);
  (void)cudaGetLastError();
}

Result<void> CudaPageMover::open() {
  const auto found = require_gpu(gpu_);
  if (!found) return tl::unexpected(found.error());
  multiprocessors_ = (*found)->multiprocessors;
  if (options_.lanes == 0 || options_.depth == 0 ||
      options_.list_bytes / options_.lanes < sizeof(PieceEntry))
    return fail(ErrorCode::kInvalidArgument,
                "a page mover of {} lanes, depth {} and {} bytes for lists is of no use",
                options_.lanes, options_.depth, options_.list_bytes);
  GpuScope scope(gpu_);
  if (!scope.entered()) return scope.entered();
  auto arena = ListArena::make(gpu_, options_.plan_bytes);
  if (!arena) return tl::unexpected(arena.error());
  arena_ = *std::move(arena);
  if (auto done = make_streams(); !done) return done;
  if (auto done = allocate(); !done) return done;
  return warm_up();
}

Result<void> CudaPageMover::make_streams() {
  const auto make = [&](cudaStream_t& stream) {
    return check_cuda(
        cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, options_.priority),
        "making a stream");
  };
  if (auto made = make(upload_); !made) return made;
  for (std::uint32_t i = 0; i < options_.lanes; ++i) {
    cudaStream_t stream = nullptr;
    if (auto made = make(stream); !made) return made;
    streams_.push_back(stream);
  }
  return {};
}

Result<void> CudaPageMover::allocate() {
  const std::uint64_t lanes = options_.lanes;
  const std::uint64_t entries = options_.list_bytes / lanes / sizeof(PieceEntry);
  const std::uint64_t bytes = lanes * (kFlagBytes + entries * sizeof(PieceEntry));
  void* host = nullptr;
  if (const cudaError_t error =
          cudaHostAlloc(&host, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
      error != cudaSuccess)
    return cuda_failed(error, fmt::format("pinning {} bytes of host memory", bytes),
                       ErrorCode::kResourceExhausted);
  host_ = static_cast<std::byte*>(host);
  std::fill_n(host_, lanes * kFlagBytes, std::byte{0});
  void* mapped = nullptr;
  if (auto done = check_cuda(cudaHostGetDevicePointer(&mapped, host, 0), "mapping host memory");
      !done)
    return done;
  void* counters = nullptr;
  const std::uint64_t counter_bytes = lanes * sizeof(std::uint32_t);
  if (auto done = check_cuda(cudaMalloc(&counters, counter_bytes), "allocating counters"); !done)
    return done;
  counters_ = static_cast<std::uint32_t*>(counters);
  // The default stream's work is not before that of our streams by itself.
  if (auto done = check_cuda(cudaMemset(counters, 0, counter_bytes), "clearing counters"); !done)
    return done;
  if (auto done = check_cuda(cudaStreamSynchronize(nullptr), "clearing counters"); !done)
    return done;
  auto* device = static_cast<std::byte*>(mapped);
  for (std::uint64_t i = 0; i < lanes; ++i) {
    const std::uint64_t ring = lanes * kFlagBytes + i * entries * sizeof(PieceEntry);
    lanes_.emplace_back(streams_[i],
                        std::span(reinterpret_cast<PieceEntry*>(host_ + ring), entries),
                        reinterpret_cast<const PieceEntry*>(device + ring),
                        reinterpret_cast<std::uint64_t*>(host_ + i * kFlagBytes),
                        reinterpret_cast<std::uint64_t*>(device + i * kFlagBytes), counters_ + i);
  }
  return {};
}

/// The first launch of a kernel loads it, which takes milliseconds: not in a transfer. It also
/// tells whether this build has code for this GPU.
Result<void> CudaPageMover::warm_up() {
  const CopyPlace here{0, gpu_};
  for (const bool aligned : {false, true}) {
    PieceList pieces;
    pieces.aligned = aligned;
    if (auto ran = launch(pieces, here, here, 0, {}); !ran) return tl::unexpected(ran.error());
    PageList pages;
    pages.aligned = aligned;
    if (auto ran = launch(pages, here, here, 0, {}); !ran) return tl::unexpected(ran.error());
  }
  return check_cuda(cudaStreamSynchronize(streams_[0]), "running a first copy");
}

tl::unexpected<Error> CudaPageMover::broken(cudaError_t error, const char* what) {
  // After an error nobody waits for what runs: so nothing may run.
  for (cudaStream_t stream : streams_) (void)cudaStreamSynchronize(stream);
  if (health_) health_ = cuda_failed(error, fmt::format("{} on GPU {}", what, gpu_));
  return tl::unexpected(health_.error());
}

Result<void> CudaPageMover::reach(CopyPlace place) {
  if (place.gpu == -1 || place.gpu == gpu_ || reached_.contains(place.gpu)) return {};
  if (!gpu_reaches(gpu_, place.gpu))
    return fail(ErrorCode::kInvalidArgument, "GPU {} cannot reach memory of GPU {}", gpu_,
                place.gpu);
  const cudaError_t error = cudaDeviceEnablePeerAccess(place.gpu, 0);
  if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled)
    return cuda_failed(error, fmt::format("opening GPU {}'s memory to GPU {}", place.gpu, gpu_));
  (void)cudaGetLastError();
  reached_.insert(place.gpu);
  return {};
}

Result<void> CudaPageMover::admit(std::uint32_t lane, CopyPlace from, CopyPlace to) {
  if (!health_) return health_;
  if (lane >= lanes_.size())
    return fail(ErrorCode::kInvalidArgument, "lane {} of a page mover with {}", lane,
                lanes_.size());
  if (lanes_[lane].running() >= options_.depth)
    return fail(ErrorCode::kBusy, "lane {} has {} copies under way", lane, options_.depth);
  if (auto done = reach(from); !done) return done;
  return reach(to);
}

Grid CudaPageMover::grid(const TileShape& shape, CopyPlace from, CopyPlace to) const {
  const int left = std::max(1, multiprocessors_ - options_.leave_multiprocessors);
  if (from.gpu == -1 || to.gpu == -1)
    return part_of_gpu(shape.tiles,
                       static_cast<unsigned>(std::min(left, options_.host_multiprocessors)));
  if (left < multiprocessors_) return part_of_gpu(shape.tiles, static_cast<unsigned>(left));
  return whole_gpu(shape.tiles, static_cast<unsigned>(multiprocessors_));
}

template <class List>
Result<CopyTicket> CudaPageMover::launch(const List& list, CopyPlace from, CopyPlace to,
                                         std::uint32_t lane, const CopyOrder& order) {
  Lane& stream = lanes_[lane];
  if (order.after != nullptr) {
    if (auto waits = wait_for(*order.after, lane); !waits) return tl::unexpected(waits.error());
  }
  DoneSignal done = stream.next();
  done.fence_each_block = to.gpu != gpu_;
  if (const cudaError_t error =
          launch_copy(list, grid(list.shape, from, to), done, stream.stream());
      error != cudaSuccess)
    return broken(error, "starting a copy");
  const CopyTicket ticket{lane, stream.has_started()};
  if (order.record != nullptr) {
    if (auto recorded = record(*order.record, lane); !recorded) {
      // The kernel runs and has no ticket: nobody else would wait for it.
      (void)cudaStreamSynchronize(stream.stream());
      return tl::unexpected(recorded.error());
    }
  }
  return ticket;
}

Result<CopyTicket> CudaPageMover::start(std::span<const CopyPiece> pieces, CopyPlace from,
                                        CopyPlace to, std::uint32_t lane, const CopyOrder& order) {
  if (auto entered = enter_gpu(gpu_); !entered) return tl::unexpected(entered.error());
  if (auto admitted = admit(lane, from, to); !admitted) return tl::unexpected(admitted.error());
  std::uint64_t count = 0;
  std::uint64_t longest = 0;
  std::uint64_t bits = from.address | to.address;
  for (const CopyPiece& piece : pieces) {
    bits |= piece.source_offset | piece.destination_offset | piece.length;
    count += cuts(piece, from, to);
    longest = std::max(longest, std::min(piece.length, GpuPlan::kRangeBytes));
  }
  Lane& taken_from = lanes_[lane];
  if (count > taken_from.ring_entries() || count * (GpuPlan::kRangeBytes / kTileBytes) >= kMaxTiles)
    return fail(ErrorCode::kInvalidArgument, "{} pieces in one list; a lane has room for {}", count,
                taken_from.ring_entries());
  const auto room = taken_from.take(count);
  if (room.size() < count)
    return fail(ErrorCode::kBusy, "lane {} has no room for {} more pieces", lane, count);
  auto entry = room.begin();
  for (const CopyPiece& piece : pieces) {
    const std::uint64_t step = cuts(piece, from, to) == 1 ? std::max<std::uint64_t>(piece.length, 1)
                                                          : GpuPlan::kRangeBytes;
    std::uint64_t done = 0;
    do {
      *entry++ = {piece.source_offset + done, piece.destination_offset + done,
                  std::min(step, piece.length - done)};
      done += step;
    } while (done < piece.length);
  }
  PieceList list;
  list.shape = shape_for(static_cast<std::uint32_t>(count), longest);
  list.pieces = taken_from.mapped(room);
  list.from = from.address;
  list.to = to.address;
  list.aligned = bits % kVectorBytes == 0;
  return launch(list, from, to, lane, order);
}

Result<std::shared_ptr<const GpuPlan>> CudaPageMover::prepare(const Layout& layout) {
  if (auto entered = enter_gpu(gpu_); !entered) return tl::unexpected(entered.error());
  if (!health_) return tl::unexpected(health_.error());
  return PreparedPlan::make(arena_, layout, upload_);
}

Result<CopyTicket> CudaPageMover::start(const GpuPlan& plan, std::uint64_t first,
                                        std::uint64_t count, CopyPlace from, CopyPlace to,
                                        std::uint32_t lane, const CopyOrder& order) {
  if (auto entered = enter_gpu(gpu_); !entered) return tl::unexpected(entered.error());
  if (auto admitted = admit(lane, from, to); !admitted) return tl::unexpected(admitted.error());
  const auto* prepared = dynamic_cast<const PreparedPlan*>(&plan);
  if (prepared == nullptr || prepared->arena() != arena_.get())
    return fail(ErrorCode::kInvalidArgument, "a plan that another page mover prepared");
  const auto list = prepared->slice(first, count, from.address, to.address);
  if (!list) return tl::unexpected(list.error());
  if (prepared->uploaded() != nullptr) {
    if (const cudaError_t error =
            cudaStreamWaitEvent(lanes_[lane].stream(), prepared->uploaded(), 0);
        error != cudaSuccess)
      return broken(error, "waiting for page lists");
  }
  return std::visit([&](const auto& each) { return launch(each, from, to, lane, order); }, *list);
}

Result<void> CudaPageMover::record(const GpuEvent& event, std::uint32_t lane) {
  if (auto entered = enter_gpu(gpu_); !entered) return entered;
  if (lane >= lanes_.size()) return fail(ErrorCode::kInvalidArgument, "no lane {}", lane);
  return check_cuda(cudaEventRecord(native(event), lanes_[lane].stream()), "recording an event");
}

Result<void> CudaPageMover::wait_for(const GpuEvent& event, std::uint32_t lane) {
  if (auto entered = enter_gpu(gpu_); !entered) return entered;
  if (lane >= lanes_.size()) return fail(ErrorCode::kInvalidArgument, "no lane {}", lane);
  return check_cuda(cudaStreamWaitEvent(lanes_[lane].stream(), native(event), 0),
                    "waiting for an event");
}

Result<CopyState> CudaPageMover::poll(const CopyTicket& ticket) {
  if (ticket.lane >= lanes_.size() || ticket.number > lanes_[ticket.lane].started())
    return fail(ErrorCode::kInvalidArgument, "copy {} of lane {} was never started", ticket.number,
                ticket.lane);
  if (lanes_[ticket.lane].finished() >= ticket.number) return CopyState::kDone;
  if (!health_) return tl::unexpected(health_.error());
  if (++polls_ % kPollsPerLook != 0) return CopyState::kRunning;
  const auto now = Clock::now();
  if (now - looked_ < kLookEvery) return CopyState::kRunning;
  looked_ = now;
  return look_for_errors(ticket);
}

Result<CopyState> CudaPageMover::look_for_errors(const CopyTicket& ticket) {
  if (auto entered = enter_gpu(gpu_); !entered) return tl::unexpected(entered.error());
  const Lane& lane = lanes_[ticket.lane];
  const cudaError_t state = cudaStreamQuery(lane.stream());
  if (lane.finished() >= ticket.number) return CopyState::kDone;
  if (state == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return CopyState::kRunning;
  }
  if (state != cudaSuccess) return broken(state, "copying");
  health_ = fail(ErrorCode::kInternal, "copies on GPU {} ended without saying so", gpu_);
  return tl::unexpected(health_.error());
}

std::size_t CudaPageMover::running() const {
  std::size_t sum = 0;
  for (const Lane& lane : lanes_) sum += lane.running();
  return sum;
}

}  // namespace
}  // namespace gpu

Result<std::unique_ptr<PageMover>> PageMover::make(int gpu, const PageMoverOptions& options) {
  auto mover = std::make_unique<gpu::CudaPageMover>(gpu, options);
  if (auto opened = mover->open(); !opened) return tl::unexpected(opened.error());
  return mover;
}

}  // namespace penstock
