// From a trace to transfers: which pages the decoder lacks for a request, where the prefill node
// has them, and into which free pages of the decoder they go.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/workload/block_pool.hpp"
#include "client/workload/kv_geometry.hpp"
#include "client/workload/trace.hpp"

namespace penstock::workload {

/// A pool that cannot hold a request at all, whatever leaves it.
class PoolTooSmall : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One request's move. Page i of the two lists belong together, in every plane.
struct HandOver {
  std::uint64_t id = 0;          // counts from 1
  std::uint64_t line = 0;        // of the trace
  std::vector<BlockKey> blocks;  // of the request, pinned in both pools
  std::vector<BlockKey> moved;   // those that the decoder lacked
  std::vector<std::uint32_t> source_pages;
  std::vector<std::uint32_t> destination_pages;
  std::vector<std::uint64_t> waits_for;  // other hand-overs that are bringing blocks of this one
  std::uint64_t prefill_hits = 0;        // blocks that the prefill node had in its pool already

  std::uint64_t decoder_hits() const { return blocks.size() - moved.size(); }
  /// The block that moved page i is part of.
  const BlockKey& block_of(std::size_t i) const;
};

class HandOverPlanner {
 public:
  HandOverPlanner(KvGeometry geometry, BlockPool prefill, BlockPool decoder);

  /// Throws PoolTooSmall, which names the request and says what would do.
  void check_fits(const TraceRequest& request) const;
  /// Pins the request's blocks in both pools; nullopt, and nothing has changed, when a pool has no
  /// room before an earlier hand-over is over.
  std::optional<HandOver> plan(const TraceRequest& request);
  /// Its pages have landed: requests that need the same blocks wait no longer. They stay pinned.
  void landed(const HandOver& hand_over);
  /// Unpins: from now on its pages may be given to others.
  void finish(const HandOver& hand_over);

  const BlockPool& prefill() const { return prefill_; }
  const BlockPool& decoder() const { return decoder_; }

 private:
  std::vector<BlockKey> blocks_of(const TraceRequest& request) const;

  const KvGeometry geometry_;
  BlockPool prefill_;
  BlockPool decoder_;
  std::unordered_map<BlockKey, std::uint64_t, BlockKeyHash> arriving_;  // -> hand-over
  std::uint64_t last_id_ = 0;
};

}  // namespace penstock::workload
