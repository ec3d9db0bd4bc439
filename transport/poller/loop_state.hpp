// The insides of PollerLoop, shared by the files that implement it: commands (loop_commands.cpp),
// completions (loop_completions.cpp) and posting (loop_posting.cpp).
#pragma once

#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/poller/immediate_counts.hpp"
#include "transport/poller/lane_ring.hpp"
#include "transport/poller/link.hpp"
#include "transport/poller/operation.hpp"
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
  bool up = true;
};

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
  void execute(ReopenOutbound&& command);
  void execute(ReopenInbound&& command);

  Link* find_link(LinkId id);
  TransferWork* find_transfer(TransferId id);
  void set_paths(TransferWork& transfer, const std::vector<RemotePath>& paths);
  void require_paths(TransferWork& transfer);
  void take_card_down(std::size_t nic, const Error& error);

  // -- completions -------------------------------------------------------------------------------
  std::size_t poll(std::size_t nic);
  void take(std::size_t nic, const Completion& completion);
  void end_chunk(std::size_t nic, ChunkOperation* operation, const Error* error);
  void end_send(std::size_t nic, SendOperation* operation, const Completion& completion);
  void release(PeerAddress* address, Link& link);
  void close_if_quiet(Link& link);
  void halt(TransferWork& transfer, std::optional<Error> reason);
  void settle(TransferWork& transfer);
  void link_failed(LinkId link, Error error);

  // -- posting -----------------------------------------------------------------------------------
  std::size_t post(std::size_t nic);
  bool post_urgent(std::size_t nic);
  bool post_bulk(std::size_t nic);
  bool post_next(std::size_t nic, TransferWork& transfer);
  TransferWork::Path* pick_path(std::size_t nic, TransferWork& transfer);
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
  std::unordered_map<TransferId, std::unique_ptr<TransferWork>> transfers;
  LaneRing urgent;
  LaneRing bulk;
  ImmediateCounts immediates;
  OperationSlab<SendOperation> sends;
  std::vector<Link*> with_messages;  // links whose outbox is not empty
  std::vector<PollerEvent> events;
  std::array<Completion, 64> completions;
  std::uint64_t step_number = 0;
  std::uint64_t operations_out = 0;  // one-sided and sends, all cards
  std::optional<Backoff::Time> step_time;
  std::optional<Backoff::Time> retry_at;  // the earliest of what the last step left alone
  bool settled = true;  // the last step found nothing to do, and no command came since
};

}  // namespace penstock
