// Replays a trace between two services: a prefill node, which has the pages, and a decoder.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "apps/penstock/page_mover.hpp"
#include "client/cpp/penstock.hpp"
#include "client/workload/hand_over.hpp"
#include "client/workload/page_check.hpp"
#include "client/workload/replay_report.hpp"

namespace penstock::app {

struct ReplayOptions {
  workload::KvGeometry geometry;
  std::uint64_t prefill_pool_bytes = 0;
  std::uint64_t decoder_pool_bytes = 0;
  bool scattered = true;  // pages are first handed out in random order, else ascending
  double speed = 0;       // trace time runs so many times faster; 0: as fast as possible
  std::size_t concurrency = 4;
  bool verify = true;
  bool corrupt_one = false;
  Memory memory = Memory::kHost;  // of both pools
  std::string path;               // as in TransferSpec
  /// Called a few times a second; throws when waiting on makes no sense.
  std::function<void()> watch = [] {};
};

/// The two services must be on this machine: the decoder's pool is mapped, to clear pages before
/// they are written.
class ReplayRun {
 public:
  /// Allocates and fills the pools. Throws client::Error, cli::UsageError.
  ReplayRun(client::Client& prefill, client::Client& decoder, ReplayOptions options);

  /// Throws Exit kTransferNotDone when a transfer does not end well, kFailed when interrupted.
  workload::ReplayReport run(const std::vector<workload::TraceRequest>& requests);

 private:
  using Clock = std::chrono::steady_clock;

  struct InFlight {
    workload::HandOver hand_over;
    Clock::time_point submitted;
    std::optional<Clock::time_point> landed;  // its own pages
    Clock::time_point complete;               // those that it waits for, too
  };
  struct Ended {
    std::uint64_t hand_over = 0;
    client::TransferResult result;
    Clock::time_point time;
  };

  /// Ends told by the client's thread and not seen yet. Shared: they may come after this object.
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Ended> ended;
  };

  workload::HandOverPlanner make_planner() const;
  bool admit(const workload::TraceRequest& request);
  void submit(InFlight& flight);
  void clear_destination(const workload::HandOver& hand_over);
  std::vector<Ended> wait_for_ended(Clock::time_point until);
  void on_ended(const Ended& ended);
  bool is_complete(const InFlight& flight) const;
  void finish_complete();
  void verify(const workload::HandOver& hand_over);
  void corrupt(const workload::HandOver& hand_over);
  void compare(const std::vector<std::uint32_t>& source, const std::vector<std::uint32_t>& target,
               const workload::HandOver& hand_over);
  void verify_at_the_end();
  void tell_difference(std::string words);
  std::byte* destination_page(std::uint32_t flat_page);
  void clear_on_gpu(const std::vector<std::uint32_t>& pages);

  const ReplayOptions options_;
  client::Client& prefill_;
  client::Client& decoder_;
  const std::uint64_t prefill_pages_;
  const std::uint64_t decoder_pages_;
  client::Region source_;
  client::Region destination_;
  client::Region blank_;  // of the decoder, one page: what pages on a GPU are cleared from
  std::vector<client::BasePair> planes_;
  std::vector<std::uint64_t> source_digests_;
  // What each page of the decoder's pool must hold now; nothing where none was moved to.
  std::vector<std::optional<std::uint64_t>> expected_;

  workload::HandOverPlanner planner_;
  std::list<InFlight> in_flight_;
  std::unordered_set<std::uint64_t> moving_;  // hand-overs whose own pages have not landed
  Clock::time_point head_since_;              // when the next request began to wait
  bool corrupted_ = false;
  std::vector<double> hand_over_ms_;
  std::vector<double> queueing_ms_;
  std::vector<workload::BusyInterval> busy_;
  workload::ReplayReport report_;

  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
};

}  // namespace penstock::app
