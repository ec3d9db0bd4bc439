// Two p5.48xlarge that write to each other on a virtual clock: 8 devices a side, each with a real
// PollerLoop, Plan, Scheduler, Outbound, Inbound and Peer over 4 simulated cards of 100 Gbps, and
// with a core of its own that pays for what it posts. Device i of one machine writes to device i of
// the other. (A real node has one Peer for all of its devices; here each device has its own, since
// devices share nothing else.) One seed decides everything.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/sim/fast_nic.hpp"
#include "tests/sim/nodes/sim_node.hpp"

namespace penstock::sim {

struct PairOptions {
  std::uint64_t seed = 1;
  std::size_t devices = 8;  // of each side
  std::size_t cards = 4;    // of each device, at the sender
  std::size_t remote_cards = 4;
  FastNicOptions card;
  PollerOptions poller;
  std::uint64_t quantum_bytes = Scheduler::Options{}.quantum_bytes;
  /// What a write costs the core of its device's poller: ours and the provider's, post and
  /// completion. An EFA set that stops at 2 million writes a second per GPU has 500 ns.
  std::chrono::nanoseconds write_cost{500};
  /// What a round of the poller costs besides.
  std::chrono::nanoseconds round_cost{300};
  /// From the poller's doorbell until the device actor has handled the event.
  std::chrono::nanoseconds actor_delay{20'000};
  std::uint64_t page_bytes = 64 * 1024;
  std::uint64_t region_bytes = std::uint64_t{1} << 30;
  std::uint64_t transfer_bytes = 256u << 20;  // the longest; others are a third and two thirds
  std::size_t open_transfers = 3;             // kept open per device by keep_busy()
};

/// What arrived in a window of time, counted at the receiver.
struct Arrivals {
  double seconds = 0;
  std::vector<std::vector<double>> gbps;  // by device and card of the receiver
  std::uint64_t writes = 0;               // posted in that time
  double busiest_core = 0;                // share of the time that the busiest poller worked

  double total_gbps() const;
  /// (most - least) / mean over all cards.
  double spread() const;
};

class Pair {
 public:
  using Duration = std::chrono::nanoseconds;

  explicit Pair(PairOptions options);
  ~Pair();

  // -- load, from side a to side b ---------------------------------------------------------------
  /// Bulk transfers of random pages, a few at a time and one after the other, on every device.
  void keep_busy();
  /// No more of them.
  void stop_load() { busy_ = false; }
  /// One bulk transfer of `bytes`.
  TransferId transfer(std::size_t device, std::uint64_t bytes);
  /// An urgent transfer of one page of 4 KiB each `every`, `count` times, on one device.
  void be_urgent(std::size_t device, Duration every, std::size_t count);

  // -- time --------------------------------------------------------------------------------------
  void run_for(Duration time);
  /// Until every transfer has ended, at most `most` long.
  bool run_to_end(Duration most);
  /// Begins kMeasureLead from now: writes are counted when they arrive, which may be so long before
  /// the line of a card that several write to has taken them in.
  Arrivals measure(Duration time);
  static constexpr Duration kMeasureLead{2'000'000};
  std::uint64_t writes() const { return wire_.writes(); }  // posted so far

  // -- faults and results ------------------------------------------------------------------------
  FastNic& sender(std::size_t device, std::size_t card) { return *sides_[0][device].cards[card]; }
  FastNic& receiver(std::size_t device, std::size_t card) { return *sides_[1][device].cards[card]; }
  /// From admission to the terminal event, in the order of their ends.
  const std::vector<Duration>& urgent_latencies() const { return urgent_latencies_; }
  std::size_t done() const { return done_; }
  std::size_t open() const { return open_.size(); }
  const std::vector<std::string>& failures() const { return failures_; }
  /// Of one bulk transfer that is done.
  const TransferResult& result(TransferId id) const { return results_.at(id); }
  /// Fills the sender's region, and whether the pages of a transfer lie where they should. For
  /// cards that move bytes.
  void fill(std::size_t device);
  bool arrived(TransferId id) const;

 private:
  class Memory;
  struct Device {
    std::unique_ptr<PollerCore> core;
    std::shared_ptr<Memory> memory;
    std::vector<FastNic*> cards;  // owned by the node's poller
    std::unique_ptr<SimNode> node;
    std::vector<std::shared_ptr<const Plan>> plans;
    std::size_t next_plan = 0;
  };
  struct Open {
    std::size_t device;
    std::shared_ptr<const Plan> plan;
    bool urgent;
    TimePoint admitted;
  };

  void make_side(std::size_t side);
  std::shared_ptr<const Plan> random_plan(std::uint64_t bytes, std::uint64_t page_bytes);
  void admit(std::size_t device, std::shared_ptr<const Plan> plan, Lane lane);
  void load(std::size_t device);
  void ended(const TransferResult& result);
  void tick();
  void step(Device& device);

  PairOptions options_;
  SimNetwork network_;
  Wire network_wire_;  // what SimNode wants: its clock and its dice
  FastWire wire_;
  std::mt19937_64 random_;
  std::vector<Device> sides_[2];
  std::int64_t now_ps_ = 0;
  std::uint64_t ticks_ = 0;
  bool busy_ = false;
  TransferId next_id_ = 1;
  std::map<TransferId, Open> open_;
  std::map<TransferId, Open> ended_;
  std::map<TransferId, TransferResult> results_;
  std::vector<Duration> urgent_latencies_;
  std::vector<std::string> failures_;
  std::size_t done_ = 0;
};

}  // namespace penstock::sim
