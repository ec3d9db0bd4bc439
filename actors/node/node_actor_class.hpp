// The node actor's class, for the files that it is written in: node_actor.cpp what it hears,
// node_actor_transfers.cpp, _streams, _third_party, _members and _report what it does about it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "actors/locked_actor.hpp"
#include "actors/messages.hpp"
#include "actors/node/acceptance.hpp"
#include "actors/node/drain.hpp"
#include "actors/node/gather.hpp"
#include "actors/node/leases.hpp"
#include "actors/node/memory_requests.hpp"
#include "actors/node/node_actor.hpp"
#include "actors/node/streams.hpp"
#include "actors/node/verifications.hpp"

namespace penstock {

/// To itself: regions were made for clients that had died by then.
struct RegionsOrphaned {};
/// The same: whether the executor of a third-party transfer has let go of our pages.
struct OwnPagesCheck {
  std::shared_ptr<TransferResult> result;
  Incarnation executor = 0;
  TimePoint until;
};

}  // namespace penstock

PENSTOCK_MESSAGE(penstock::RegionsOrphaned)
PENSTOCK_MESSAGE(penstock::OwnPagesCheck)

namespace penstock {

class NodeActor : public LockedActor {
 public:
  /// At releases, a drain and open transfers it looks so often.
  static constexpr Milliseconds kLook{20};

  NodeActor(caf::actor_config& config, NodeActorSetup setup)
      : LockedActor(config, {setup.desk, &setup.desk->mutex}),
        setup_(std::move(setup)),
        started_(Clock::now()),
        // Ids of one run start at its incarnation's low bits, so that they differ between runs.
        ledger_(setup_.ledger, (setup_.incarnation & 0xffffff) << 32 | 1),
        events_(setup_.events_kept, setup_.send),
        monitor_(setup_.traces_kept),
        memory_(std::make_unique<RegionJobs>(setup_.node, setup_.segments, setup_.regions,
                                             setup_.devices, setup_.limits, setup_.descriptors),
                setup_.regions, setup_.audit, setup_.release_deadline, memory_port()),
        verifications_(verifications_port()),
        streams_(streams_port()),
        third_party_(
            {setup_.node, setup_.third_party, setup_.regions, setup_.shadows, setup_.audit},
            third_party_port()) {}

  caf::behavior make_behavior() override;

 private:
  struct Member {
    MemberRecord record;
    MemberState state = MemberState::kAlive;
    bool here = false;  // takes part
    bool gone = false;  // this run of it has ended for certain
    bool connected = false;
    caf::actor peer;     // none when it is not here, or speaks another version than we do
    TimePoint departed;  // when it is not here any more
  };

  void ok(const ClientId& client, std::uint64_t id, nlohmann::json body);
  void refuse(const ClientId& client, std::uint64_t id, const Error& error);
  /// The reply of a job that ends on another thread.
  RegionJobs::Reply reply_later(const ClientId& client, std::uint64_t id);
  Verifications::Port verifications_port();
  Streams::Port streams_port();
  ThirdPartyTransfers::Port third_party_port();
  MemoryRequests::Port memory_port();
  void heard(const ClientId& client, const Request& request);
  /// The gateway's thread, under our lock: nothing here may use what only a running actor has.
  bool accept_at_desk(const ClientId& client, Request& request);

  // -- memory ------------------------------------------------------------------------------------

  void handle(const ClientId& client, std::uint64_t id, const HelloRequest& request);
  nlohmann::json ring_report(const HelloRequest& request) const;
  /// What concerns regions.
  template <class Body>
  void handle(const ClientId& client, std::uint64_t id, const Body& request) {
    constexpr bool kMakesMemory =
        std::is_same_v<Body, AllocateRequest> || std::is_same_v<Body, RegisterRequest>;
    if (kMakesMemory && drain_) return refuse(client, id, draining_error(setup_.node));
    memory_.handle({client, asker_, reply_later(client, id)}, request);
  }

  // -- clients that die --------------------------------------------------------------------------

  void watch_leases();
  void check_leases(TimePoint due);
  void client_died(const ClientId& client);

  // -- transfers ---------------------------------------------------------------------------------

  Result<void> takes_work(const std::string& name) const;
  /// Whether the node can be asked to carry out transfers for us.
  Result<void> takes_delegations(const std::string& name) const;
  /// Whether a node is here, and understands what came with this version of the messages.
  Result<void> can_be_asked(const Member& member, std::uint32_t version,
                            std::string_view otherwise) const;
  AcceptanceRules rules() const;
  void handle(const ClientId& client, std::uint64_t id, const TransferRequest& request);
  void begin(Accepted& accepted);
  void transfer_ended(TransferResult& result);

  // -- third-party transfers ---------------------------------------------------------------------

  void node_asked(const NodeAsked& asked);
  void tell_progress(const NodeAsked& asked, const LookAtDelegated& look, const caf::actor& peer);
  /// One whose other end is ours is told when its executor can touch nothing of it any more.
  void shadow_ended(TransferResult result);
  void check_own_pages(const OwnPagesCheck& check);
  void watch_delegated();
  void check_delegated(TimePoint due);

  // -- streams -----------------------------------------------------------------------------------

  void handle(const ClientId& client, std::uint64_t id, const StreamRequest& request);
  /// The stream, if there is one, is another client's: says so to whoever asks.
  bool is_anothers(const ClientId& client, std::uint64_t id, TransferId stream);
  void handle(const ClientId& client, std::uint64_t id, const AppendRequest& request);
  void handle(const ClientId& client, std::uint64_t id, const CloseRequest& request);
  void watch_streams();
  void check_streams(TimePoint due);
  void notified(const Notification& notification);
  void handle(const ClientId& client, std::uint64_t id, const CancelRequest& request);
  void cancel(TransferId transfer, const Ledger::Entry& entry);
  void cancel_all();
  void handle(const ClientId& client, std::uint64_t id, const SubscribeRequest& request);

  // -- what is going on --------------------------------------------------------------------------

  void handle(const ClientId& client, std::uint64_t id, const StatusRequest&);
  nlohmann::json status(const Gathered& gathered) const;
  caf::typed_response_promise<Watched> watched();
  void handle(const ClientId& client, std::uint64_t id, const TraceRequest& request);
  void handle(const ClientId& client, std::uint64_t id, const TransfersRequest& request);
  void handle(const ClientId& client, std::uint64_t id, const NodesRequest&);
  nlohmann::json nodes() const;

  // -- members -----------------------------------------------------------------------------------

  void member_changed(const MemberChange& change);
  void member_departed(const MemberChange& change);
  void member_event(std::string_view kind, const MemberRecord& record, const std::string& reason);
  void meet(Member& member, const std::string& reason);
  void on_exit() override;
  /// Also of one that is apart already, once it is known to be gone: what was kept for its return
  /// goes then.
  void part(Member& member, const Error& error, bool gone);
  void forget_departed();
  void peer_ready(const PeerReady& ready);
  /// A peer may speak before its PeerKnown reached the device, or before gossip told us of it: the
  /// first is passed on, the second is repeated by its sender until we know it.
  void stranger_spoke(Message& message);

  // -- drain -------------------------------------------------------------------------------------

  void handle(const ClientId& client, std::uint64_t id, const DrainRequest& request);
  void drain_asked(const DrainAsked& asked);
  void handle(const ClientId& client, std::uint64_t id, const RemoveRequest& request);
  caf::response_promise drain();
  void drain_check();
  void refuse_opens();

  NodeActorSetup setup_;
  NodeChildren children_;
  TimePoint started_;
  Ledger ledger_;
  EventLog events_;
  Monitor monitor_;
  TimePoint received_;  // the request that is being answered
  MemoryRequests memory_;
  Verifications verifications_;
  Streams streams_;
  TimePoint streams_due_ = TimePoint::max();
  ThirdPartyTransfers third_party_;
  TimePoint delegated_due_ = TimePoint::max();
  std::map<std::string, Member> members_;
  Asker asker_;  // of the request in hand
  Leases leases_;
  TimePoint leases_due_ = TimePoint::max();
  bool forgetting_ = false;  // a look is due
  bool exiting_ = false;
  std::optional<Drain> drain_;
  std::optional<caf::response_promise> drained_;
};

}  // namespace penstock
