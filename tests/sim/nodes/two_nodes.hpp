// Two simulated nodes that move pages to and fro while everything goes wrong that a seed can think
// of, and a model of the memory that knows which bytes may change.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/nodes/sim_node.hpp"

namespace penstock::sim {

/// How much of what goes wrong.
struct Weather {
  std::size_t transfers = 24;
  double message_loss = 0;
  double failure_chance = 0;  // per operation
  double late_chance = 0.5;
  double cancel_chance = 0.15;
  double short_deadline_chance = 0.15;
  bool card_faults = true;  // deaths, stalls, bursts of failures
  std::array<std::size_t, 2> cards{2, 2};
  std::size_t most_pages = 10;  // of one transfer
  std::size_t outages = 0;      // cards that go dark or die
  bool for_good = false;        // and do not come back
  bool all_done = false;        // nothing else goes wrong: every transfer has to succeed
  bool partings = false;        // a peer is thought dead and met again
  bool crash = false;           // node b ends and comes back as another incarnation
  bool releases = false;        // regions are taken away by force
  FenceKind fence = FenceKind::kReopenInbound;
  std::array<bool, 2> on_gpu{false, false};  // regions in memory that no card reaches
  double move_failure_chance = 0;            // of a copy to or from a slot there
};

class TwoNodes {
 public:
  TwoNodes(std::uint64_t seed, Weather weather);
  ~TwoNodes();
  /// Runs to the end; what broke is in failures().
  void run();
  const std::vector<std::string>& failures() const { return failures_; }
  std::string history() const;
  std::size_t done() const { return done_; }
  std::size_t ended() const { return ended_; }
  std::uint64_t landed_late() const { return wire_.landed_late; }

 private:
  static constexpr std::size_t kPageBytes = 256;
  static constexpr std::size_t kPages = 192;
  /// Memory that outlives its region, so that late bytes are seen and not a crash.
  struct Store {
    std::string name;
    std::vector<std::byte> bytes = std::vector<std::byte>(kPages * kPageBytes);
    std::size_t next_page = 0;
    std::map<std::size_t, std::pair<std::byte, std::string>> poison;  // by page: value, since when
  };
  struct Moved {
    TransferId id = 0;
    std::size_t side = 0;
    SimNode* initiator = nullptr;
    Incarnation incarnation = 0;
    std::shared_ptr<Store> source;
    std::shared_ptr<Store> destination;
    std::vector<std::size_t> source_pages;
    std::vector<std::size_t> destination_pages;
    bool write = true;
    bool ended = false;
    bool notify = false;
    bool notified = false;
    bool handed_out = false;  // the owner let go of its pages already
  };

  template <class... Args>
  void note(fmt::format_string<Args...> text, Args&&... args);
  template <class... Args>
  void broke(fmt::format_string<Args...> text, Args&&... args);

  void start(std::size_t side, Incarnation incarnation);
  void add_region(std::size_t side, const std::string& name);
  void plan_faults();
  void take_out(LateNic& nic);
  void begin(std::size_t side);
  void take_pages(Moved& moved, std::size_t count);
  void settle();
  void poison(Store& store, const std::vector<std::size_t>& pages, std::byte value,
              const std::string& why);
  void poison_remote(Moved& moved, const std::string& why);
  void check_poison(const std::string& when);
  bool right(const Moved& moved, std::size_t page) const;
  void check_landed(const Moved& moved, const TransferResult& result);
  void ended(Moved& moved, const TransferResult& result);
  void check_end();
  std::uint64_t below(std::uint64_t limit) { return network_.below(limit); }
  Clock::duration some(std::uint64_t most_us) { return std::chrono::microseconds(below(most_us)); }

  Weather weather_;
  SimNetwork network_;
  Wire wire_;
  TimePoint began_;
  std::array<SimNode*, 2> nodes_{};
  std::vector<std::unique_ptr<SimNode>> all_nodes_;
  std::map<std::pair<std::size_t, std::string>, std::shared_ptr<Store>> stores_;  // now in use
  std::vector<std::shared_ptr<Store>> all_stores_;
  std::map<TransferId, Moved> moved_;
  TransferId next_id_ = 1;
  std::size_t done_ = 0;
  std::size_t ended_ = 0;
  std::vector<std::string> history_;
  std::vector<std::string> failures_;
};

}  // namespace penstock::sim
