// What a write costs in our own code: the real Outbound, Scheduler, Plan and PollerLoop of one
// device with 4 cards that do nothing. CPU time of this thread: real, so never the same twice.
#pragma once

#include <cstdint>

namespace penstock::sim {

struct WriteCost {
  double all_ns = 0;     // per write, the card's calls included
  double card_ns = 0;    // of them, what the same calls to the card cost without us
  double cursor_ns = 0;  // of them, drawing the chunk from the plan
  double scan_ns = 0;    // besides, per page: checking the layout once, on another thread
  double own_ns() const { return all_ns - card_ns; }
};

/// Random pages in one list, no two neighbours; the best of a few rounds.
WriteCost measure_write_cost(std::uint64_t page_bytes, std::uint64_t pages, std::uint64_t seed);

/// CPU time per 4 KiB write of the simulated pair at full size, and of a bare loop that posts to
/// the same simulated cards.
struct SimulatedCost {
  double with_ns = 0;
  double without_ns = 0;
};
SimulatedCost measure_simulated_cost(std::uint64_t seed);

/// What a packed page costs a core, in nanoseconds: gathered into a slot and scattered from it, in
/// memory far larger than the caches.
struct PackedPageCost {
  double gather_ns = 0;
  double scatter_ns = 0;
};
PackedPageCost measure_packed_page(std::uint64_t page_bytes, std::uint64_t seed);

}  // namespace penstock::sim
