// A checked layout, ready to be posted: how many chunks it makes once neighbours are merged, what
// it covers on either side, and a cursor that yields the chunks one by one without allocating.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/error.hpp"
#include "transport/plan/layout.hpp"
#include "transport/plan/walk.hpp"

namespace penstock {

/// One contiguous write or read. `sequence` numbers the chunks of a plan from 0 without gaps.
struct Chunk {
  std::uint64_t sequence = 0;
  std::uint64_t source_offset = 0;
  std::uint64_t destination_offset = 0;
  std::uint64_t length = 0;
};

struct PlanLimits {
  /// No chunk is longer than this (a provider's max_msg_size, or what balances cards well).
  std::uint64_t max_chunk_bytes = 1u << 20;
  /// Joins pages that are neighbours on both sides, up to max_chunk_bytes.
  bool merge = true;
};

/// Immutable; shared by the device actor and the poller.
class Plan {
 public:
  /// Scans the layout once. Refuses (kInvalidArgument) lists of different length, zero row_bytes
  /// with pages present, offsets or sums past 2^64, max_chunk_bytes of 0. Empty work (no ranges, no
  /// pages, zero lengths only) is a valid plan of 0 chunks.
  static Result<std::shared_ptr<const Plan>> make(Layout layout, PlanLimits limits);

  const Layout& layout() const { return layout_; }
  const PlanLimits& limits() const { return limits_; }
  /// Bytes moved in all.
  std::uint64_t bytes() const { return bytes_; }
  /// Chunks that a Cursor over this plan yields.
  std::uint64_t chunks() const { return chunks_; }
  /// One past the last byte touched; 0 for empty work. Compare with a region's size.
  std::uint64_t source_end() const { return source_end_; }
  std::uint64_t destination_end() const { return destination_end_; }

 private:
  Plan() = default;
  Layout layout_;
  PlanLimits limits_;
  std::uint64_t bytes_ = 0;
  std::uint64_t chunks_ = 0;
  std::uint64_t source_end_ = 0;
  std::uint64_t destination_end_ = 0;
};

/// Walks a plan's chunks in order. Copyable; holds no memory of its own. The plan must outlive it.
class Cursor {
 public:
  explicit Cursor(const Plan& plan);
  /// Sets `chunk` to the next chunk; false at the end.
  bool next(Chunk& chunk);
  bool done() const { return sequence_ == plan_->chunks(); }

 private:
  const Plan* plan_;
  std::uint64_t sequence_ = 0;
  ElementWalk walk_;
  Element open_;   // what is left of the run that is being cut into chunks
  Element ahead_;  // the element behind it, not yet joined; length 0 at the end
};

}  // namespace penstock
