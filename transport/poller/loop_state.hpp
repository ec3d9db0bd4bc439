// The insides of PollerLoop, shared by the files that implement it: commands (loop_commands.cpp),
// completions (loop_completions.cpp), posting (loop_posting.cpp) and what is dead
// (loop_health.cpp).
#pragma once

#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/poller/immediate_counts.hpp"
#include "transport/poller/lane_ring.hpp"
#include "transport/poller/link.hpp"
#include "transport/poller/operation.hpp"
#include "transport/poller/packed_arrivals.hpp"
#include "transport/poller/poller.hpp"
#include "transport/poller/transfer_work.hpp"

namespace penstock {

/// One card, what is out on it and where it stands in the lanes.
struct CardState {
  CardState(std::unique_ptr<Nic> card, const PollerOptions& options)
      : nic(std::move(card)), chunks(options.card_window_operations) {}

  std::unique_ptr<Nic> nic;
  CardCounters counters;
  OperationSlab<ChunkOperation> chunks;
  std::uint64_t posted_bytes = 0;
  std::uint32_t posted_operations = 0;
  std::uint32_t immediates_out = 0;
  bool up = true;
  // While it is down: when its outbound endpoint is tried again.
  Backoff::Time reopen_at{};
  std::chrono::milliseconds reopen_after{0};
};

/// One writer: the poller. Readers only need some recent value.
inline void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) {
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

struct PollerLoop::State {
  State(std::vector<std::unique_ptr<Nic>> nics, PollerOptions options, Clock clock);
  /// Closes the cards first: until then what is posted may use its operation and its memory.
  ~State();

  // -- commands ----------------------------------------------------------------------------------
  void execute(OpenLink&& command);
  void execute(MoveLink&& command);
  void execute(CloseLink&& command);
  void execute(SendMessage&& command);
  void execute(StartTransfer&& command);
  void execute(Grant&& command);
  void execute(StopTransfer&& command);
  void execute(ResumeTransfer&& command);
  void execute(EndTransfer&& command);
  void execute(ArmImmediate&& command);
  void execute(DisarmImmediate&& command);
  void execute(PeersAtWork&& command) { peers_at_work = command.at_work; }
  void execute(ReopenOutbound&& command);
  void execute(ReopenInbound&& command);
  void execute(UseStaging&& command);
  void execute(UseMover&& command);
  void execute(ArmPacked&& command);
  void execute(DisarmPacked&& command);
  void execute(AddPaths&& command);
  void execute(CutOff&& command);

  Link* find_link(LinkId id);
  TransferWork* find_transfer(TransferId id);
  void add_paths(TransferWork& transfer, const std::vector<RemotePath>& paths);
  void unknown_transfer(TransferId id);
  void forget(TransferId id);
  /// Of this memory; null: the processor copies its pages, or nobody does (mover_error()).
  SlotMover* mover_of(const RegionMemory& memory) const;
  std::optional<Error> mover_error(const RegionMemory& memory) const;

  // -- what is dead ------------------------------------------------------------------------------
  void look_for_the_dead(bool nothing_happened);
  void look_at(Link& link, bool anew);
  void look_at_credits(bool anew);
  void cut_off(std::size_t nic);
  void drop_link(const Link& link, const Error& reason);
  void fail_link(Link& link, const Error& reason);
  void lost_paths(TransferWork& transfer, const Error& reason);
  /// Counts a transfer that lost a way over this card and has others.
  void note_failover(std::size_t nic, const TransferWork& transfer);
  bool reopen_outbound(std::size_t nic);
  void take_card_down(std::size_t nic, const Error& error);
  void try_card_again(std::size_t nic);

  // -- completions -------------------------------------------------------------------------------
  std::size_t poll(std::size_t nic);
  void take(std::size_t nic, const Completion& completion);
  /// `cut_off`: by a reopened endpoint, which says nothing against the link.
  void end_chunk(std::size_t nic, ChunkOperation* operation, const Error* error,
                 bool cut_off = false);
  void take_credit(std::size_t nic, const Credit& credit);
  void end_send(std::size_t nic, SendOperation* operation, const Completion& completion);
  void release(PeerAddress* address, Link& link);
  void close_if_quiet(Link& link);
  void halt(TransferWork& transfer, std::optional<Error> reason);
  void settle(TransferWork& transfer);
  void link_failed(LinkId link, Error error);
  void show_what_is_out();

  // -- posting -----------------------------------------------------------------------------------
  std::size_t post(std::size_t nic);
  bool post_urgent(std::size_t nic);
  bool post_bulk(std::size_t nic);
  std::uint64_t post_next(std::size_t nic, TransferWork& transfer);
  bool can_post(std::size_t nic, TransferWork& transfer);
  OneSided direct(std::size_t nic, TransferWork& transfer, const TransferWork::Path& path);
  Bundle* packed(TransferWork& transfer, const TransferWork::Path& path);
  TransferWork::Path* pick_path(std::size_t nic, TransferWork& transfer);
  std::size_t send_credits();
  std::size_t look_at_scattering();
  std::size_t gather_ahead();
  std::size_t gather_ahead(TransferWork& transfer);
  bool has_room(const Link& link, bool counted);
  bool card_has_room(const CardState& card) const;
  void refused(Link& link);
  std::size_t send_messages();
  bool send_next(Link& link);
  void enqueue(TransferWork& transfer);
  void dequeue(TransferWork& transfer);
  void tell_hunger(TransferWork& transfer);
  LaneRing& lane(const TransferWork& transfer) {
    return transfer.lane() == Lane::kUrgent ? urgent : bulk;
  }
  /// The time, read at most once per step.
  Backoff::Time now();
  /// Whether the link has to be left alone for now; notes when it is to be tried again.
  bool backs_off(const Backoff& backoff);

  PollerOptions options;
  Clock clock;
  std::vector<std::unique_ptr<CardState>> cards;
  std::unordered_map<LinkId, std::unique_ptr<Link>> links;
  SendSlots send_slots;
  std::vector<std::pair<int, std::shared_ptr<SlotMover>>> movers;  // by GPU
  std::size_t pieces = kMostPieces;  // of our memory, that every card takes in one operation
  std::unordered_map<TransferId, std::unique_ptr<TransferWork>> transfers;
  std::vector<TransferWork*> gatherers;  // of them, those that gather ahead; urgent ones first
  LaneRing urgent;
  LaneRing bulk;
  ImmediateCounts immediates;
  PackedArrivals arrivals;
  OperationSlab<SendOperation> sends;
  std::vector<Link*> with_messages;  // links whose outbox is not empty
  std::vector<PollerEvent> events;
  std::array<Completion, 64> completions;
  std::uint64_t step_number = 0;
  std::uint64_t operations_out = 0;  // one-sided and sends, all cards
  std::optional<Backoff::Time> step_time;
  std::optional<Backoff::Time> retry_at;  // the earliest of what the last step left alone
  Backoff::Time last_look{};              // at links that may stand still
  bool peers_at_work = false;
  bool settled = true;  // the last step found nothing to do, and no command came since
};

}  // namespace penstock
