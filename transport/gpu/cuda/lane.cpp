#include "transport/gpu/cuda/lane.hpp"

namespace penstock::gpu {

void Lane::reclaim() {
  const std::uint64_t done = finished();
  while (!held_.empty() && held_.front().number <= done) {
    tail_ = held_.front().end;
    held_.pop_front();
  }
  if (held_.empty()) head_ = tail_ = 0;
}

std::span<PieceEntry> Lane::take(std::uint64_t count) {
  reclaim();
  const std::uint64_t size = ring_.size();
  std::uint64_t at = head_ % size;
  std::uint64_t skipped = 0;
  if (at + count > size) {  // a list lies in one piece
    skipped = size - at;
    at = 0;
  }
  if (head_ + skipped + count - tail_ > size) return {};
  head_ += skipped + count;
  return ring_.subspan(at, count);
}

std::uint64_t Lane::has_started() {
  ++started_;
  if (held_.empty() ? head_ != tail_ : head_ != held_.back().end)
    held_.push_back({started_, head_});
  return started_;
}

}  // namespace penstock::gpu
