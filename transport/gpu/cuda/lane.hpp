// One stream of a page mover: its ring of piece lists in mapped host memory, and the word that its
// kernels count up.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <span>

#include "transport/gpu/cuda/copy_kernels.hpp"

namespace penstock::gpu {

class Lane {
 public:
  /// All memory is the mover's. `ring_mapped` is the ring as kernels see it.
  Lane(cudaStream_t stream, std::span<PieceEntry> ring, const PieceEntry* ring_mapped,
       std::uint64_t* flag, std::uint64_t* flag_mapped, std::uint32_t* blocks_done)
      : stream_(stream),
        ring_(ring),
        ring_mapped_(ring_mapped),
        flag_(flag),
        flag_mapped_(flag_mapped),
        blocks_done_(blocks_done) {}

  cudaStream_t stream() const { return stream_; }
  std::uint64_t started() const { return started_; }
  /// The last copy that is done: they are in order.
  std::uint64_t finished() const { return __atomic_load_n(flag_, __ATOMIC_ACQUIRE); }
  std::uint64_t running() const { return started_ - finished(); }

  std::uint64_t ring_entries() const { return ring_.size(); }
  /// Room for `count` pieces in a row; empty when copies under way still use it.
  std::span<PieceEntry> take(std::uint64_t count);
  const PieceEntry* mapped(std::span<PieceEntry> taken) const {
    return ring_mapped_ + (taken.data() - ring_.data());
  }

  /// What the next kernel is to say when it is done. What was taken belongs to it once it started.
  DoneSignal next() const { return {blocks_done_, flag_mapped_, started_ + 1}; }
  std::uint64_t has_started();

 private:
  void reclaim();

  struct Held {
    std::uint64_t number;
    std::uint64_t end;  // in the ring's count
  };

  cudaStream_t stream_;
  std::span<PieceEntry> ring_;
  const PieceEntry* ring_mapped_;
  std::uint64_t* flag_;
  std::uint64_t* flag_mapped_;
  std::uint32_t* blocks_done_;
  std::uint64_t started_ = 0;
  std::uint64_t head_ = 0;  // counts entries; its place in the ring is the rest by the size
  std::uint64_t tail_ = 0;
  std::deque<Held> held_;
};

}  // namespace penstock::gpu
