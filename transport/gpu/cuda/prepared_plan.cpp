#include "transport/gpu/cuda/prepared_plan.hpp"

#include <algorithm>
#include <cstring>

#include "transport/gpu/cuda/driver.hpp"

namespace penstock::gpu {
namespace {

/// Shorter lists are read by the kernel where they are, in host memory: sooner there than copied.
constexpr std::uint64_t kReadInPlace = 8 * 1024;

}  // namespace

Result<std::shared_ptr<const PreparedPlan>> PreparedPlan::make(std::shared_ptr<ListArena> arena,
                                                               const Layout& layout,
                                                               cudaStream_t upload) {
  std::shared_ptr<PreparedPlan> plan(new PreparedPlan(std::move(arena)));
  auto written = std::holds_alternative<Pages>(layout)
                     ? plan->write_pages(std::get<Pages>(layout))
                     : plan->write_ranges(std::get<Ranges>(layout));
  if (written) written = plan->make_readable(upload);
  if (!written) return tl::unexpected(written.error());
  return plan;
}

PreparedPlan::~PreparedPlan() {
  if (uploaded_ != nullptr) arena_->give_back_event(uploaded_);
  if (room_bytes_ != 0) arena_->give_back(room_, room_bytes_);
}

Result<void> PreparedPlan::take_room(std::uint64_t bytes) {
  if (bytes == 0) return {};
  const auto room = arena_->take(bytes);
  if (!room)
    return fail(ErrorCode::kResourceExhausted,
                "lists of {} bytes do not fit beside the others into the {} that a page mover has",
                bytes, arena_->bytes());
  room_ = *room;
  room_bytes_ = bytes;
  return {};
}

// In the room: base pairs, source pages, destination pages.
Result<void> PreparedPlan::write_pages(const Pages& pages) {
  pages_.row_bytes = pages.row_bytes;
  std::uint64_t rows = pages.rows;
  if (pages.source_pitch == pages.row_bytes && pages.destination_pitch == pages.row_bytes) {
    pages_.row_bytes *= rows;
    rows = 1;
  }
  const std::uint64_t count = pages.source_pages.size();
  const std::uint64_t bases = pages.bases.size();
  if (count == 0 || bases == 0 || rows == 0 || pages_.row_bytes == 0) return {};
  elements_ = bases * count * rows;
  bytes_ = elements_ * pages_.row_bytes;
  const std::uint64_t base_bytes = bases * sizeof(BasePair);
  const std::uint64_t list_bytes = count * sizeof(std::uint32_t);
  if (auto room = take_room(base_bytes + 2 * list_bytes); !room) return room;
  std::byte* at = arena_->host(room_);
  std::memcpy(at, pages.bases.data(), base_bytes);
  std::memcpy(at + base_bytes, pages.source_pages.bytes().data(), list_bytes);
  std::memcpy(at + base_bytes + list_bytes, pages.destination_pages.bytes().data(), list_bytes);
  pages_.rows = Divider::by(static_cast<std::uint32_t>(rows));
  pages_.pages = Divider::by(static_cast<std::uint32_t>(count));
  pages_.wide = elements_ >= kMaxTiles;
  pages_.source_pitch = pages.source_pitch;
  pages_.destination_pitch = pages.destination_pitch;
  pages_.source_stride = pages.source_stride;
  pages_.destination_stride = pages.destination_stride;
  bits_ = pages_.row_bytes | pages_.source_stride | pages_.destination_stride;
  if (rows > 1) bits_ |= pages_.source_pitch | pages_.destination_pitch;
  for (const BasePair& base : pages.bases) bits_ |= base.source | base.destination;
  source_pages_at_ = base_bytes;
  destination_pages_at_ = base_bytes + list_bytes;
  return {};
}

// In the room: pieces, none longer than kRangeBytes, none empty.
Result<void> PreparedPlan::write_ranges(const Ranges& ranges) {
  ranges_ = true;
  const std::uint64_t count = ranges.ranges.size();
  for (std::uint64_t i = 0; i < count; ++i)
    elements_ += (ranges.ranges[i].length + kRangeBytes - 1) / kRangeBytes;
  if (elements_ > arena_->bytes() / sizeof(PieceEntry))
    return fail(ErrorCode::kResourceExhausted, "{} ranges are more than a page mover has room for",
                elements_);
  if (auto room = take_room(elements_ * sizeof(PieceEntry)); !room) return room;
  auto* piece = reinterpret_cast<PieceEntry*>(arena_->host(room_));
  for (std::uint64_t i = 0; i < count; ++i) {
    const Range range = ranges.ranges[i];
    for (std::uint64_t done = 0; done < range.length; done += kRangeBytes) {
      *piece = {range.source_offset + done, range.destination_offset + done,
                std::min(kRangeBytes, range.length - done)};
      longest_ = std::max(longest_, piece->length);
      bits_ |= piece->source_offset | piece->destination_offset | piece->length;
      ++piece;
    }
    bytes_ += range.length;
  }
  return {};
}

Result<void> PreparedPlan::make_readable(cudaStream_t upload) {
  if (room_bytes_ == 0) return {};
  lists_ = arena_->mapped(room_);
  if (room_bytes_ > kReadInPlace) {
    uploaded_ = arena_->take_event();
    if (uploaded_ == nullptr) return fail(ErrorCode::kProvider, "no event left for a list's copy");
    lists_ = arena_->device(room_);
    cudaError_t error = cudaMemcpyAsync(arena_->device(room_), arena_->host(room_), room_bytes_,
                                        cudaMemcpyHostToDevice, upload);
    if (error == cudaSuccess) error = cudaEventRecord(uploaded_, upload);
    if (error != cudaSuccess) return cuda_failed(error, "copying page lists to the GPU");
  }
  return {};
}

const PieceEntry* PreparedPlan::host_pieces() const {
  return reinterpret_cast<const PieceEntry*>(arena_->host(room_));
}

std::uint64_t PreparedPlan::bytes(std::uint64_t first, std::uint64_t count) const {
  if (first >= elements_) return 0;
  count = std::min(count, elements_ - first);
  if (!ranges_) return count * pages_.row_bytes;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) sum += host_pieces()[first + i].length;
  return sum;
}

std::uint64_t PreparedPlan::elements_of(std::uint64_t first, std::uint64_t bytes) const {
  if (first >= elements_) return 0;
  const std::uint64_t left = elements_ - first;
  if (!ranges_)
    return std::min(left, std::max<std::uint64_t>(
                              1, bytes / pages_.row_bytes + (bytes % pages_.row_bytes != 0)));
  std::uint64_t count = 0;
  for (std::uint64_t sum = 0; count < left && sum < bytes; ++count)
    sum += host_pieces()[first + count].length;
  return std::max<std::uint64_t>(count, 1);
}

Result<std::variant<PieceList, PageList>> PreparedPlan::slice(std::uint64_t first,
                                                              std::uint64_t count,
                                                              std::uint64_t from,
                                                              std::uint64_t to) const {
  if (first > elements_ || count > elements_ - first)
    return fail(ErrorCode::kInvalidArgument, "elements [{}, +{}) asked of a plan of {}", first,
                count, elements_);
  const std::uint64_t longest = ranges_ ? longest_ : pages_.row_bytes;
  const std::uint64_t cuts = std::max<std::uint64_t>(1, (longest + kTileBytes - 1) / kTileBytes);
  if (count >= kMaxTiles / cuts)
    return fail(ErrorCode::kInvalidArgument, "{} elements of {} bytes are too many for one launch",
                count, longest);
  const TileShape shape = shape_for(static_cast<std::uint32_t>(count), longest);
  const bool aligned = (bits_ | from | to) % kVectorBytes == 0;
  if (ranges_ || count == 0) {
    PieceList list;
    list.shape = shape;
    list.aligned = aligned;
    list.pieces = reinterpret_cast<const PieceEntry*>(lists_) + first;
    list.from = from;
    list.to = to;
    return list;
  }
  PageList list = pages_;
  list.shape = shape;
  list.aligned = aligned;
  list.bases = reinterpret_cast<const std::uint64_t*>(lists_);
  list.source_pages = reinterpret_cast<const std::uint32_t*>(lists_ + source_pages_at_);
  list.destination_pages = reinterpret_cast<const std::uint32_t*>(lists_ + destination_pages_at_);
  list.first = first;
  list.from = from;
  list.to = to;
  return list;
}

}  // namespace penstock::gpu
