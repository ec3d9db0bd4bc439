// What one direct operation carries: a chunk, or several that lie one behind the other in the
// remote region, whatever their places in ours. The card gathers or scatters ours by itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/fabric/nic.hpp"
#include "transport/plan/plan.hpp"

namespace penstock {

class ChunkRun {
 public:
  bool empty() const { return count_ == 0; }
  std::uint64_t bytes() const { return bytes_; }
  std::size_t size() const { return count_; }
  const Chunk& front() const { return chunks_[0]; }
  std::span<const Chunk> chunks() const { return {chunks_.data(), count_}; }

  void clear() {
    count_ = 0;
    bytes_ = 0;
  }
  /// At most kMostPieces.
  void add(const Chunk& chunk) {
    chunks_[count_++] = chunk;
    bytes_ += chunk.length;
  }
  /// As `run = other`, but copies no chunk that is not there.
  void assign(const ChunkRun& other) {
    for (std::size_t i = 0; i < other.count_; ++i) chunks_[i] = other.chunks_[i];
    count_ = other.count_;
    bytes_ = other.bytes_;
  }

 private:
  std::array<Chunk, kMostPieces> chunks_;
  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace penstock
