// A lean simulated card for whole racks: line rate, latency, depth, deliveries in any order, death
// and return, and what each post costs the core that polls it. Two events per write and nothing
// looked up, so that millions of writes a second of wall clock are simulated. SimNic (sim_nic.hpp)
// is the one that misbehaves in more ways.
//
// A write leaves when the core has posted it and the line is free, arrives after the latency and
// the jitter, waits until the target's line is free, lands, and is told to its initiator after the
// latency again. Every card is full duplex and serves first come, first served.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <queue>
#include <random>
#include <span>
#include <vector>

#include "transport/fabric/nic.hpp"

namespace penstock::sim {

class FastNic;

/// A core that polls cards, on the virtual clock. Picoseconds, as everywhere below: a 64 KiB page
/// lasts 5242.88 ns at 100 Gbps.
struct PollerCore {
  std::int64_t post_ps = 0;        // what posting one write costs it
  std::int64_t completion_ps = 0;  // what a completion costs it
  std::int64_t free_ps = 0;        // busy until then
  std::int64_t busy_ps = 0;        // in all
  void works(std::int64_t ps) {
    free_ps += ps;
    busy_ps += ps;
  }
};

struct FastNicOptions {
  std::string name = "fast0";
  double gbps = 100;
  std::chrono::nanoseconds latency{7500};  // one way
  std::chrono::nanoseconds jitter{2000};   // up to so much more, at random
  std::chrono::nanoseconds per_write{0};   // the card takes no write faster than this
  std::size_t depth = 4096;                // operations out before EAGAIN
  bool move_bytes = false;                 // else the memory is not touched
  FenceKind fence = FenceKind::kRekey;
};

/// What the cards share: the events under way and the keys. Driven by one thread.
class FastWire {
 public:
  explicit FastWire(std::uint64_t seed) : random_(seed) {}

  /// Runs what is due until then.
  void run_until(std::int64_t now_ps);
  std::int64_t now_ps() const { return now_ps_; }
  /// What comes in from `begin_ps` to `end_ps` is counted by FastNic::landed_bytes().
  void count(std::int64_t begin_ps, std::int64_t end_ps) {
    count_begin_ps_ = begin_ps;
    count_end_ps_ = end_ps;
  }
  std::uint64_t writes() const { return writes_; }

 private:
  friend class FastNic;

  struct Operation {
    FastNic* from = nullptr;
    FastNic* to = nullptr;
    OperationContext* context = nullptr;
    void* local = nullptr;
    std::uint64_t length = 0;
    std::uint64_t remote_address = 0;
    std::uint64_t remote_key = 0;
    std::uint32_t immediate = 0;
    bool counted = false;
    bool message = false;
    bool ok = true;
    std::uint32_t from_generation = 0;  // of the outbound endpoint that it was posted on
    std::uint32_t to_generation = 0;    // of the inbound endpoint that it was posted to
    std::vector<std::byte> payload;
  };
  enum class Step : unsigned char { kArrives, kLands, kEnds };
  struct Event {
    std::int64_t at_ps;
    std::uint64_t number;  // equal times run in the order of making
    std::uint32_t operation;
    Step step;
    bool operator>(const Event& other) const {
      return at_ps != other.at_ps ? at_ps > other.at_ps : number > other.number;
    }
  };

  std::uint32_t take();
  void at(std::int64_t at_ps, std::uint32_t operation, Step step) {
    events_.push({at_ps, next_number_++, operation, step});
  }
  std::int64_t jitter(std::int64_t most_ps);
  void arrives(std::uint32_t index);
  void lands(std::uint32_t index);
  void count(const Operation& operation, std::int64_t landed_ps);
  void ends(std::uint32_t index);
  bool reaches(const Operation& operation) const;

  std::mt19937_64 random_;
  std::int64_t now_ps_ = 0;
  std::int64_t count_begin_ps_ = 0;
  std::int64_t count_end_ps_ = 0;
  std::uint64_t next_number_ = 0;
  std::uint64_t writes_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Operation> operations_;
  std::vector<std::uint32_t> free_;
  std::vector<FastNic*> cards_;               // by number
  std::vector<std::span<std::byte>> memory_;  // by key - 1; empty: the key is void
};

class FastNic final : public Nic {
 public:
  /// `core` polls it and must outlive it.
  FastNic(FastWire& wire, PollerCore& core, FastNicOptions options);
  ~FastNic() override;

  // -- faults ------------------------------------------------------------------------------------
  /// From now on nothing comes from it or arrives at it. `silent`: what is under way just never
  /// ends; otherwise it ends as an error.
  void die(bool silent);
  void revive() { dead_ = false; }
  FastNicOptions& options() { return options_; }

  // -- what a test asks --------------------------------------------------------------------------
  /// Payload that came in here in the time that FastWire::count() names; of a write that began
  /// before or landed after, its part.
  double landed_bytes() const { return landed_bytes_; }
  void forget_landed() { landed_bytes_ = 0; }
  std::size_t out() const { return out_; }
  std::uint64_t again() const { return again_; }
  /// A poll would return something.
  bool ready() const { return next_ready_ < ready_.size() || !arrivals_.empty(); }

  // -- Nic ---------------------------------------------------------------------------------------
  const NicInfo& info() const override { return info_; }
  FabricAddress control_address() const override { return address(0); }
  FabricAddress inbound_address() const override { return address(generation_); }
  std::uint32_t inbound_generation() const override { return generation_; }
  Result<PeerHandle> add_peer(const FabricAddress& address) override;
  void remove_peer(PeerHandle) override {}
  Post post(const OneSided& operation, OperationContext* context) override;
  Post send(PeerHandle peer, std::span<const std::byte> payload,
            OperationContext* context) override;
  std::size_t poll(std::span<Completion> completions) override;
  bool may_wait() override { return !ready(); }
  Result<void> reopen_outbound() override;
  Result<void> reopen_inbound() override;
  Result<std::unique_ptr<MemoryRegistration>> register_memory(std::span<std::byte> memory) override;

 private:
  friend class FastWire;
  class Registration;
  struct Ended {
    OperationContext* context;
    bool ok;
    bool message;
  };
  struct Arrival {
    std::uint32_t immediate;
    bool message;
    std::vector<std::byte> payload;
  };

  FabricAddress address(std::uint32_t generation) const;
  std::int64_t line_ps(std::uint64_t bytes) const {
    return static_cast<std::int64_t>(static_cast<double>(bytes) * 8000.0 / options_.gbps);
  }
  std::int64_t travel_ps();

  FastWire& wire_;
  PollerCore& core_;
  FastNicOptions options_;
  NicInfo info_;
  std::uint32_t number_;
  std::uint32_t generation_ = 1;  // of the inbound endpoint
  std::uint32_t outbound_generation_ = 1;
  bool dead_ = false;
  bool silent_ = false;
  std::int64_t sends_free_ps_ = 0;
  std::int64_t receives_free_ps_ = 0;
  std::size_t out_ = 0;
  double landed_bytes_ = 0;
  std::uint64_t again_ = 0;
  std::vector<Ended> ready_;
  std::size_t next_ready_ = 0;
  std::vector<Arrival> arrivals_;
  std::vector<Arrival> lent_;  // payloads that the last poll gave out
};

}  // namespace penstock::sim
