// The life of the transfers that this device initiates, as pure logic: the states of
// docs/architecture.md ("A transfer's life"). The CAF actor around it, and the simulation, carry
// messages and time in and out.
//
//   queued -> opening -> running -> finishing -> done
//   running | finishing -> stopping -> fencing -> failed | cancelled | expired
//                                             \-> running again, after a card or link failure
//   copying -> done | cancelled | expired        (both regions on this node)
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/clock.hpp"
#include "actors/device/last_fences.hpp"
#include "actors/device/region_table.hpp"
#include "actors/device/scheduler.hpp"
#include "actors/device/warm_up.hpp"
#include "actors/peer/peer.hpp"
#include "actors/protocol/path.hpp"
#include "actors/protocol/reply.hpp"
#include "transport/gpu/event.hpp"
#include "transport/packing/write_costs.hpp"
#include "transport/plan/plan.hpp"
#include "transport/poller/event.hpp"

namespace penstock {

/// A transfer that passed admission (actors/node/admission.hpp): its ranges fit the local region.
struct Admitted {
  TransferId id = 0;
  std::string node;  // the other node's name; the own name: a copy
  std::string remote_region;
  std::uint64_t remote_epoch = 0;
  Direction direction = Direction::kWrite;
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<RegionUse> local;
  std::shared_ptr<RegionUse> copy_target;  // the other region when it is on this node too
  Lane lane = Lane::kBulk;
  std::uint32_t weight = 1;
  std::string notify;
  TimePoint deadline;
  PackingMode packing = PackingMode::kAuto;
  PathChoice path = PathChoice::kAuto;
  std::shared_ptr<GpuEvent> start_after{};   // nothing is read before it is done
  std::shared_ptr<GpuEvent> record_event{};  // recorded behind a copy on this node
  std::optional<std::size_t> only_link{};    // of a warm-up: the one link that it goes over
  TimePoint received{};                      // its request, at the gateway
  TimePoint accepted{};                      // by the node actor
  TransferId stream = 0;                     // of which it is a part; 0: of none
  std::uint32_t part = 0;
  TransferId shadow = 0;  // the other node's, when it asked for it
};

/// The peer said neither yes nor no.
constexpr bool unanswered(ErrorCode code) {
  return code == ErrorCode::kPeerUnreachable || code == ErrorCode::kPeerLeft ||
         code == ErrorCode::kPeerDead;
}

/// A copy that the device's copier thread works on.
struct CopyTask {
  TransferId transfer = 0;
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<RegionUse> source;
  std::shared_ptr<RegionUse> destination;
  std::shared_ptr<std::atomic<bool>> stop;
  std::shared_ptr<GpuEvent> start_after{};
  std::shared_ptr<GpuEvent> record_event{};
};

/// Bytes arrived in a region of ours and its initiator asked for a word to the subscribers.
struct Notification {
  std::string from;  // node
  TransferId transfer = 0;
  std::string region;
  std::uint64_t bytes = 0;
  std::string data;
  TransferId stream = 0;  // of which the transfer is a part; 0: of none
  std::uint32_t part = 0;
};

class Outbound {
 public:
  struct Options {
    std::string node;                // ours
    std::string device;              // ours
    std::vector<std::string> cards;  // names, by place in the device
    PackingMode packing = PackingMode::kAuto;
    WriteCosts costs;                   // until those of a peer are measured
    std::uint64_t staging_bytes = 0;    // of a slot of our own staging memory; 0: there is none
    std::uint32_t pack_slots = 16;      // wanted for one transfer
    std::uint64_t inline_bytes = 8192;  // writes up to so much travel inside their Open
    Scheduler::Options scheduler;
    std::uint64_t counted_chunks = 256;  // transfers of at most so many chunks are counted
    /// Transfers of one lane open at one node at once; the rest wait here.
    std::size_t open_per_node = 64;
    std::uint64_t window_bytes = 16u << 20;  // what can be posted at most, for the grace
    Milliseconds open{2000};
    Milliseconds connect{5000};  // how long a transfer waits for its peer to come up
    Milliseconds grace_min{250};
    Milliseconds grace_max{2000};
    Milliseconds fence{2000};
    Milliseconds lease_extra{5000};
    /// Failures without progress in between before the transfer gives up.
    std::uint32_t retries = 8;
    Milliseconds retry_backoff{20};     // doubled with each failure without progress, not when busy
    std::size_t landed_ranges = 65536;  // at most so many are reported
  };
  /// Effects. Called from within Outbound's functions; must not call back into it.
  struct Port {
    std::function<void(PollerCommand)> command;
    std::function<void(Incarnation peer, std::uint64_t token, Question, TimePoint deadline)> ask;
    std::function<void(CopyTask)> copy;
    /// What cards wrote to this region on a GPU is to be made visible to its kernels, now. May be
    /// left out.
    std::function<void(const Region&)> make_visible{};
    std::function<void(Notification)> notify;   // of a copy on this node
    std::function<void(TransferResult)> ended;  // the one terminal event
  };
  enum class State : unsigned char {
    kQueued,
    kOpening,
    kRunning,
    kFinishing,
    kStopping,
    kFencing,
    kBackingOff,
    kCopying
  };

  /// Ids from here on are warm-ups: no ledger comes so far.
  static constexpr TransferId kWarmUpIds = TransferId{1} << 63;

  Outbound(Options options, Port port);

  void admit(Admitted admitted, TimePoint now);
  /// Writes from `scratch`, of ours, to the scratch region of one of the peer's devices: over every
  /// link, then to measure. Nothing is told of it; a failure ends it.
  void warm_up(Incarnation peer, const std::string& node, const std::string& device,
               std::shared_ptr<RegionUse> scratch, TimePoint now);
  void cancel(TransferId transfer, TimePoint now);
  /// Ends every transfer that uses this region of ours (it is being released).
  void cancel_region(const std::string& region, TimePoint now);

  void peer_up(const std::string& node, Incarnation peer, TimePoint now);
  /// `gone`: the incarnation has ended (left, restarted); otherwise it is only silent.
  void peer_down(const std::string& node, Incarnation peer, const Error& error, bool gone,
                 TimePoint now);
  /// The owner takes its region away.
  void revoked(Incarnation peer, const std::string& region, std::uint64_t epoch, TimePoint now);

  /// The answer to an ask; `links` with OpenOk and Fenced: the peer's links to the owner's device.
  void answered(std::uint64_t token, Result<Answer> answer,
                Result<std::vector<Peer::PathCard>> links, TimePoint now);
  /// Links to a device of the peer's work again; `links` are the ones to use now. Running transfers
  /// that lost some go on over them too.
  void links_back(Incarnation peer, const std::string& device,
                  const std::vector<Peer::PathCard>& links);
  void quantum_done(const QuantumDone& event);
  void idle(const TransferIdle& event, TimePoint now);
  void copied(TransferId transfer, std::uint64_t bytes, std::uint64_t chunks, TimePoint now,
              std::optional<Error> error = std::nullopt);

  void tick(TimePoint now);
  TimePoint next_tick() const;

  struct Snapshot {
    TransferId id;
    State state;
    std::uint64_t bytes;
    std::uint64_t total_bytes;
    std::string node;
    std::string region;
    std::string remote_region;
    Direction direction;
    Lane lane;
    TimePoint started;
    TransferId stream;  // 0: of none
    std::uint32_t part;
  };
  std::vector<Snapshot> snapshot() const;
  /// What of its result is known already, and in which state it is. None: not under way here.
  struct Unfinished {
    State state;
    TransferResult result;
  };
  std::optional<Unfinished> unfinished(TransferId transfer, TimePoint now) const;
  /// Since the start, warm-ups too.
  struct Counters {
    std::uint64_t opens = 0;    // questions
    std::uint64_t fences = 0;   // the same
    std::uint64_t retries = 0;  // times that a transfer went on after a failure
  };
  const Counters& counters() const { return counters_; }
  /// As measured; those of the options while they are not.
  WriteCosts costs_of(Incarnation peer) const;
  std::size_t size() const { return transfers_.size(); }

 private:
  using Outcome = TransferResult::State;
  using Remote = TransferResult::Remote;
  struct Transfer {
    Admitted asked;
    State state = State::kQueued;
    TimePoint started;
    TimePoint due = TimePoint::max();  // of the state, or the transfer's own deadline
    Incarnation peer = 0;              // 0 until it is opened
    bool peer_gone = false;            // that incarnation has ended, its memory with it
    std::uint64_t token = 0;           // of the open question, 0: none
    std::string device;                // the owner's
    std::uint64_t epoch = 0;           // of the remote region; 0 until it is known
    std::vector<RegionKey> keys;
    std::vector<RegionKey> staging_keys;
    /// Those that may have been posted on since the last fence, each at its newest generation.
    std::vector<Peer::PathCard> links;
    std::optional<std::uint32_t> immediate;
    bool inlined = false;        // the Open carries the data: it may have landed before any answer
    std::size_t link_count = 0;  // to the owner's device
    std::uint64_t pack_below = 0;  // chunks shorter than this are to be packed
    bool staged = false;           // nothing may go directly
    bool remote_on_gpu = false;    // the owner's region
    bool was_busy = false;         // its owner has refused it once as kBusy
    bool ask_again =
        false;  // its Open is due later: the owner had no slots, or an event is not done
    std::optional<Packing> slots;  // of a staged transfer that goes on after a fence
    bool started_poller = false;
    bool resumed = false;         // re-posted chunks carry no immediates: only Fin ends it
    std::optional<Error> reason;  // why it is being stopped; none: a failure to be retried
    Outcome outcome = Outcome::kFailed;
    bool asked_final = false;    // the open Fence says that the transfer ends
    bool forced = false;         // outbound endpoints are being reopened
    std::uint32_t failures = 0;  // since the last progress
    std::uint64_t bytes_at_failure = 0;
    TransferIdle last;
    Stages stages;
    std::shared_ptr<std::atomic<bool>> stop_copy;
  };
  struct WarmUpRun {
    Incarnation peer;
    std::string node;
    std::string device;
    std::shared_ptr<RegionUse> scratch;
    WarmUp steps;
  };
  /// What waits for one node, and how much is open there.
  struct Node {
    struct Queue {
      std::set<TransferId> waiting;  // ids grow: the oldest first
      std::size_t open = 0;
    };
    std::optional<Incarnation> up;
    Queue lanes[2];
    bool opening = false;  // its waiting transfers are being opened right now
    bool idle() const {
      return !up && !opening && std::ranges::all_of(lanes, [](const Queue& queue) {
        return queue.waiting.empty() && queue.open == 0;
      });
    }
  };

  void next_warm_up(WarmUpRun run, TimePoint now);
  void warm_up_ended(TransferId id, bool done, std::size_t links, std::chrono::nanoseconds elapsed,
                     TimePoint now);
  void enter(Transfer& transfer, State state, TimePoint due);
  void ask(Transfer& transfer, Question question, TimePoint deadline);
  void tell(const Transfer& transfer, Question question, TimePoint deadline);
  Node::Queue& queue_of(const Transfer& transfer);
  void open_waiting(Node& node, TimePoint now);
  void open(Transfer& transfer, TimePoint now);
  std::optional<Error> cannot_go(const Transfer& transfer) const;
  std::optional<Error> cannot_go(const Transfer& transfer, const OpenOk& answer) const;
  Result<std::shared_ptr<const Plan>> cut_to_slots(const Plan& plan,
                                                   std::uint64_t slot_bytes) const;
  std::uint32_t slots_wanted(const Transfer& transfer) const;
  void copy(Transfer& transfer, TimePoint now);
  void finish(Transfer& transfer, TimePoint now);
  void stop(Transfer& transfer, Outcome outcome, Error reason, TimePoint now);
  void fence(Transfer& transfer, TimePoint now);
  Fence fence_of(const Transfer& transfer, bool final) const;
  void keep_telling(const Transfer& transfer, TimePoint now);
  void resume(Transfer& transfer, TimePoint now);
  void end(Transfer& transfer, Outcome outcome, std::optional<Error> error, Remote remote,
           TimePoint now);
  static Error late(const Transfer& transfer);
  void overdue(Transfer& transfer, TimePoint now);
  void not_taken(Transfer& transfer, const Error& error, TimePoint now);
  void opened(Transfer& transfer, Result<Answer>& answer,
              Result<std::vector<Peer::PathCard>>& links, TimePoint now);
  void finished(Transfer& transfer, const Result<Answer>& answer, TimePoint now);
  void fenced(Transfer& transfer, Result<Answer>& answer,
              Result<std::vector<Peer::PathCard>>& links, TimePoint now);
  void grant();
  static std::vector<RemotePath> paths_over(const std::vector<Peer::PathCard>& links,
                                            const Transfer& transfer);
  std::uint64_t pack_below(const Transfer& transfer) const;
  bool fits_inline(const Transfer& transfer) const;
  Milliseconds grace_of(const Transfer& transfer, TimePoint now) const;
  static void note_posted(Transfer& transfer, TimePoint now);
  static Path path_of(const Transfer& transfer);
  TransferResult result_of(const Transfer& transfer, TimePoint now) const;

  Options options_;
  Port port_;
  Scheduler scheduler_;
  std::unordered_map<TransferId, Transfer> transfers_;
  std::unordered_map<std::uint64_t, TransferId> asked_;  // open questions
  std::set<std::pair<TimePoint, TransferId>> due_;
  std::map<std::string, Node> nodes_;
  std::map<TransferId, WarmUpRun> warm_ups_;  // by the transfer under way
  TransferId next_warm_up_ = kWarmUpIds;
  std::map<Incarnation, WriteCosts> costs_;
  LastFences last_fences_;
  std::uint64_t next_token_ = 1;
  Counters counters_;
};

std::string_view name_of(Outbound::State state);

}  // namespace penstock
