#include "actors/node/node_actor.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "actors/messages.hpp"
#include "actors/node/acceptance.hpp"
#include "actors/node/drain.hpp"
#include "actors/node/gather.hpp"
#include "actors/node/gpu_device.hpp"
#include "actors/node/leases.hpp"
#include "actors/node/member_report.hpp"
#include "actors/node/memory_requests.hpp"
#include "actors/node/status_report.hpp"
#include "actors/node/verifications.hpp"
#include "actors/peer/peer_actor.hpp"

namespace penstock {
namespace {

constexpr Milliseconds kLook{20};  // at releases and a drain, so often
/// How long the others need to hear that we drain, and their transfers to come in.
constexpr Milliseconds kDrainSettle{500};
constexpr Milliseconds kForgetLook{10000};

/// A member that takes part, so that there is a peer for it.
bool is_here(MemberState state) {
  return state != MemberState::kLeft && state != MemberState::kDead;
}

class NodeActor : public caf::event_based_actor {
 public:
  NodeActor(caf::actor_config& config, NodeActorSetup setup)
      : caf::event_based_actor(config),
        setup_(std::move(setup)),
        started_(Clock::now()),
        // Ids of one run start at its incarnation's low bits, so that they differ between runs.
        ledger_(setup_.ledger, (setup_.incarnation & 0xffffff) << 32 | 1),
        events_(setup_.events_kept, setup_.send),
        monitor_(setup_.traces_kept),
        memory_(std::make_unique<RegionJobs>(setup_.node, setup_.segments, setup_.regions,
                                             setup_.devices, setup_.limits, setup_.descriptors),
                setup_.regions, setup_.audit, setup_.release_deadline, memory_port()),
        verifications_(verifications_port()) {}

  caf::behavior make_behavior() override {
    return {
        [this](const NodeChildren& children) { children_ = children; },
        [this](const ClientRequest& request) {
          received_ = request.request->received;
          asker_ = {request.request->who, request.request->role};
          leases_.heard(request.client, Clock::now());
          std::visit([&](auto& body) { handle(request.client, request.request->id, body); },
                     request.request->body);
        },
        [this](const ClientGone& gone) { events_.unsubscribe(gone.client); },
        [this](const ReplyReady& ready) { setup_.send(ready.client, ready.reply); },
        [this](const TransferEnded& ended) {
          if (!verifications_.take(*ended.result, Clock::now())) transfer_ended(*ended.result);
        },
        [this](const BatchCompared& batch) { verifications_.compared(batch, Clock::now()); },
        [this](const Notified& notified) { this->notified(notified.notification); },
        [this](const MemberChanged& changed) { member_changed(changed.change); },
        [this](const PeerReady& ready) { peer_ready(ready); },
        [this](StrangerSpoke& spoke) { stranger_spoke(spoke.message); },
        [this](const PeerTrouble& trouble) {
          spdlog::debug("a link to {} failed: membership asks it at once", trouble.node);
          setup_.suspect(trouble.node);
        },
        [this](const CheckLeases& check) { check_leases(check.due); },
        [this](const CheckReleases&) { memory_.look(); },
        [this](const BeginDrain&) { return drain(); },
        [this](const DrainCheck&) { drain_check(); },
        [this](const DrainAsked& asked) { drain_asked(asked); },
        [this](const ForgetDeparted&) { forget_departed(); },
        [this](const CancelAll&) { cancel_all(); },
        [this](const AskWatched&) { return watched(); },
    };
  }

 private:
  struct Member {
    MemberRecord record;
    MemberState state = MemberState::kAlive;
    bool here = false;  // takes part
    bool connected = false;
    caf::actor peer;     // none when it is not here, or speaks another version than we do
    TimePoint departed;  // when it is not here any more
  };

  void ok(const ClientId& client, std::uint64_t id, nlohmann::json body) {
    setup_.send(client, ok_reply(id, std::move(body)));
  }
  void refuse(const ClientId& client, std::uint64_t id, const Error& error) {
    setup_.send(client, error_reply(id, error));
  }
  /// The reply of a job that ends on another thread.
  RegionJobs::Reply reply_later(const ClientId& client, std::uint64_t id) {
    return [self = caf::actor(this), client, id](Result<nlohmann::json> result) {
      tell(self, ReplyReady{client, result ? ok_reply(id, std::move(*result))
                                           : error_reply(id, result.error())});
    };
  }

  Verifications::Port verifications_port() {
    return {.work =
                [this](std::size_t device, std::function<void()> job) {
                  setup_.devices[device]->copier->post(std::move(job));
                },
            .peer =
                [this](const std::string& node) {
                  const auto found = members_.find(node);
                  return found == members_.end() ? caf::actor() : found->second.peer;
                },
            .self = [this] { return caf::actor(this); },
            .ended = [this](TransferResult result) { transfer_ended(result); }};
  }

  MemoryRequests::Port memory_port() {
    return {.evict =
                [this](const std::string& region) {
                  verifications_.cancel_region(region);
                  for (const auto& device : children_.devices) tell(device, EvictRegion{region});
                },
            .look_later = [this] { tell_at(this, Clock::now() + kLook, CheckReleases{}); }};
  }

  // -- memory ------------------------------------------------------------------------------------

  void handle(const ClientId& client, std::uint64_t id, const HelloRequest& request) {
    spdlog::debug("client '{}' says hello", request.client);
    leases_.grant(client, Milliseconds(request.lease_ms), Clock::now());
    watch_leases();
    nlohmann::json devices = nlohmann::json::array();
    for (const auto& device : setup_.devices) devices.push_back(device->name);
    ok(client, id,
       {{"version", kProtocolVersion},
        {"node", setup_.node},
        {"incarnation", setup_.incarnation},
        {"service_version", setup_.service_version},
        {"devices", std::move(devices)},
        {"descriptor_socket", setup_.descriptors ? setup_.descriptors->path().string() : ""}});
  }
  /// What concerns regions.
  template <class Body>
  void handle(const ClientId& client, std::uint64_t id, const Body& request) {
    constexpr bool kMakesMemory =
        std::is_same_v<Body, AllocateRequest> || std::is_same_v<Body, RegisterRequest>;
    if (kMakesMemory && drain_) return refuse(client, id, draining_error(setup_.node));
    memory_.handle({client, asker_, reply_later(client, id)}, request);
  }

  // -- clients that die --------------------------------------------------------------------------

  void watch_leases() {
    const TimePoint next = leases_.next();
    if (next >= leases_due_) return;
    leases_due_ = next;
    tell_at(this, next, CheckLeases{next});
  }

  void check_leases(TimePoint due) {
    if (due != leases_due_) return;  // another, earlier one took its place
    leases_due_ = TimePoint::max();
    for (const ClientId& client : leases_.expired(due, Clock::now())) client_died(client);
    watch_leases();
  }

  void client_died(const ClientId& client) {
    std::size_t transfers = 0;
    events_.unsubscribe(client);
    for (TransferId transfer : ledger_.newest(SIZE_MAX))
      if (const auto* entry = ledger_.find(transfer); !entry->result && entry->client == client) {
        cancel(transfer, *entry);
        ++transfers;
      }
    const std::size_t regions = memory_.client_died(client);
    spdlog::warn(
        "a client was not heard within its lease: {} transfers cancelled, {} regions "
        "released",
        transfers, regions);
  }

  // -- transfers ---------------------------------------------------------------------------------

  Result<void> takes_work(const std::string& name) const {
    const auto found = members_.find(name);
    if (found == members_.end())
      return fail(ErrorCode::kNotFound,
                  "no node '{}' is known here: `nodes` lists the members; check gossip.members",
                  name);
    if (found->second.state == MemberState::kDraining)
      return fail(ErrorCode::kDraining, "node '{}' is draining: send new work to another node",
                  name);
    return {};
  }

  void handle(const ClientId& client, std::uint64_t id, const TransferRequest& request) {
    const AcceptanceRules rules{
        {setup_.node, setup_.plan, setup_.default_deadline,
         [this](const std::string& name) { return takes_work(name); }, open_client_event},
        setup_.transfers_in_flight,
        setup_.client_transfers,
        drain_.has_value(),
        setup_.audit.get()};
    auto accepted =
        accept(request, client, asker_, rules, *setup_.regions, ledger_, received_, Clock::now());
    if (!accepted) return refuse(client, id, accepted.error());
    ok(client, id, {{"ids", accepted->ids}});
    setup_.set_load(static_cast<std::uint32_t>(ledger_.in_flight()));
    for (std::size_t i = 0; i < accepted->admitted.size(); ++i) {
      auto admitted = std::make_shared<Admitted>(std::move(accepted->admitted[i]));
      if (accepted->verify[i]) verifications_.expect(*admitted);
      const std::size_t device = (*admitted->local)->device_index;
      tell(children_.devices[device], Admit{std::move(admitted)});
    }
  }

  void transfer_ended(TransferResult& result) {
    const auto* entry = ledger_.find(result.id);
    if (!entry || entry->result) {
      spdlog::critical("transfer {} ended twice", result.id);
      return;
    }
    const ClientId client = entry->client;
    result.stages.enter(Stage::kNotification, Clock::now());
    events_.publish(Topic::kTransfers, transfer_event(result, events_.next()), &client);
    const TimePoint now = Clock::now();
    result.stages.finish(now);
    monitor_.transfer_ended(result, std::chrono::system_clock::now());
    ledger_.end(std::move(result), now);
    setup_.set_load(static_cast<std::uint32_t>(ledger_.in_flight()));
  }

  void notified(const Notification& notification) {
    std::vector<std::uint8_t> data(notification.data.begin(), notification.data.end());
    events_.publish(Topic::kNotify, {{"event", "notify"},
                                     {"from", notification.from},
                                     {"transfer", notification.transfer},
                                     {"region", notification.region},
                                     {"bytes", notification.bytes},
                                     {"data", nlohmann::json::binary(std::move(data))}});
  }

  void handle(const ClientId& client, std::uint64_t id, const CancelRequest& request) {
    nlohmann::json unknown = nlohmann::json::array();
    for (TransferId transfer : request.ids)
      if (const auto* entry = ledger_.find(transfer); entry && !asker_.may_touch(entry->who))
        return refuse(
            client, id,
            asker_.refuse("transfer", std::to_string(transfer), setup_.audit.get()).value());
    for (TransferId transfer : request.ids) {
      const auto* entry = ledger_.find(transfer);
      if (!entry)
        unknown.push_back(transfer);
      else if (!entry->result)
        cancel(transfer, *entry);
    }
    ok(client, id, {{"unknown", std::move(unknown)}});
  }

  void cancel(TransferId transfer, const Ledger::Entry& entry) {
    if (!verifications_.cancel(transfer))
      tell(children_.devices[entry.device], CancelTransfer{transfer});
  }

  void cancel_all() {
    if (drain_) {
      drain_->shut();
      refuse_opens();
    }
    for (TransferId transfer : ledger_.newest(SIZE_MAX))
      if (const auto* entry = ledger_.find(transfer); entry && !entry->result)
        cancel(transfer, *entry);
  }

  void handle(const ClientId& client, std::uint64_t id, const SubscribeRequest& request) {
    // The reply goes first: the client then knows which events are old.
    const std::uint64_t newest = events_.next() - 1;
    if (auto valid = events_.subscribe(client, request.topics, request.since); !valid)
      return refuse(client, id, valid.error());
    ok(client, id, {{"seq", newest}});
  }

  // -- what is going on --------------------------------------------------------------------------

  void handle(const ClientId& client, std::uint64_t id, const StatusRequest&) {
    gather(*this, children_,
           [this, client, id](const Gathered& gathered) { ok(client, id, status(gathered)); });
  }

  nlohmann::json status(const Gathered& gathered) const {
    return status_report(
        {setup_, ledger_.totals(), monitor_, drain_.has_value(), started_, events_.subscribers()},
        gathered);
  }

  caf::typed_response_promise<Watched> watched() {
    auto promise = make_response_promise<Watched>();
    ledger_.forget(Clock::now());
    gather(*this, children_, [this, promise](const Gathered& gathered) mutable {
      promise.deliver(Watched{std::make_shared<nlohmann::json>(
          nlohmann::json{{"status", status(gathered)},
                         {"nodes", nodes()},
                         {"transfers", watched_transfers(ledger_, gathered)},
                         {"counts", monitor_.counts()}})});
    });
    return promise;
  }

  void handle(const ClientId& client, std::uint64_t id, const TraceRequest& request) {
    find_trace(*this, children_, {ledger_, monitor_, request.transfer, setup_.traces_kept},
               reply_later(client, id));
  }

  void handle(const ClientId& client, std::uint64_t id, const TransfersRequest& request) {
    ledger_.forget(Clock::now());
    const bool watch = request.under_way_first && request.ids.empty();
    const auto ids = request.ids.empty() ? ledger_.newest(request.limit) : request.ids;
    gather(*this, children_, [this, client, id, ids, watch](const Gathered& gathered) {
      ok(client, id,
         {{"transfers", watch ? watched_transfers(ledger_, gathered)
                              : transfers_report(ledger_, ids, gathered)}});
    });
  }

  void handle(const ClientId& client, std::uint64_t id, const NodesRequest&) {
    ok(client, id, {{"nodes", nodes()}});
  }

  nlohmann::json nodes() const {
    nlohmann::json nodes = nlohmann::json::array();
    nodes.push_back({{"name", setup_.node},
                     {"incarnation", setup_.incarnation},
                     {"state", drain_ ? "draining" : "self"},
                     {"wire_version", setup_.peer.wire_version},
                     {"provider", setup_.provider},
                     {"service_version", setup_.service_version}});
    const auto seen = setup_.members();
    for (const auto& [name, member] : members_)
      nodes.push_back(member_report(
          {member.record, member.state, member.connected, setup_.peer.wire_version}, seen));
    return nodes;
  }

  // -- members -----------------------------------------------------------------------------------

  void member_changed(const MemberChange& change) {
    const MemberRecord& record = change.record;
    if (record.node == setup_.node) {
      spdlog::error("another node calls itself '{}' too: {}", record.node, change.reason);
      return;
    }
    if (!is_here(change.state)) return member_departed(change);
    Member& member = members_[record.node];
    if (member.record.incarnation != 0 && member.record.incarnation != record.incarnation)
      part(member, {ErrorCode::kStalePeer, "node '" + record.node + "' restarted"}, true);
    const bool drained = member.here && member.state == MemberState::kDraining;
    member.record = record;
    member.state = change.state;
    if (!member.here) meet(member, change.reason);
    if (change.state == MemberState::kDraining && !drained)
      member_event("draining", record, change.reason);
  }

  void member_departed(const MemberChange& change) {
    const MemberRecord& record = change.record;
    const auto found = members_.find(record.node);
    if (found == members_.end() || found->second.record.incarnation != record.incarnation)
      return;  // never seen, or replaced already
    Member& member = found->second;
    const bool left = change.state == MemberState::kLeft;
    const bool was_here = member.here;
    member.state = change.state;
    const ErrorCode code = left          ? ErrorCode::kPeerLeft
                           : change.gone ? ErrorCode::kStalePeer
                                         : ErrorCode::kPeerDead;
    part(member,
         {code,
          fmt::format("node '{}' {}: {}", record.node, left ? "left" : "is dead", change.reason)},
         change.gone);
    if (was_here) member_event(left ? "left" : "dead", record, change.reason);
  }

  void member_event(std::string_view kind, const MemberRecord& record, const std::string& reason) {
    spdlog::info("member {} (incarnation {:x}) {}: {}", record.node, record.incarnation, kind,
                 reason);
    if (kind == "dead")
      monitor_.trouble("member", fmt::format("{} is dead: {}", record.node, reason),
                       std::chrono::system_clock::now());
    events_.publish(Topic::kMembers,
                    penstock::member_event(kind, record.node, record.incarnation, reason));
  }

  void meet(Member& member, const std::string& reason) {
    member.here = true;
    member_event("joined", member.record, reason);
    if (!compatible(member.record.wire_version, setup_.peer.wire_version))
      return spdlog::error(
          "node {} speaks version {} of the fabric metadata, we speak {}: nodes at most one apart "
          "work together, upgrade the older one",
          member.record.node, member.record.wire_version, setup_.peer.wire_version);
    PeerActorSetup peer;
    peer.record = member.record;
    peer.options = setup_.peer;
    peer.devices = setup_.devices;
    peer.device_actors = children_.devices;
    peer.nics = children_.nics;
    peer.node = caf::actor(this);
    peer.regions = setup_.regions;
    peer.audit = setup_.audit;
    member.peer = spawn_peer(system(), std::move(peer));
    for (const auto& device : children_.devices)
      tell(device, PeerKnown{member.record.incarnation, member.peer});
  }

  void on_exit() override {
    forgetting_ = true;  // nobody will look
    for (auto& [name, member] : members_)
      part(member, {ErrorCode::kPeerLeft, "this node is shutting down"}, false);
    // Jobs hold this actor, and devices do: without this nobody would ever be destroyed, or we
    // would be by our own worker.
    memory_.stop();
    children_ = {};
  }

  /// Also of one that is apart already, once it is known to be gone: what was kept for its return
  /// goes then.
  void part(Member& member, const Error& error, bool gone) {
    if (std::exchange(member.here, false)) {
      member.departed = Clock::now();
      if (!forgetting_) tell_at(this, member.departed + kForgetLook, ForgetDeparted{});
      forgetting_ = true;
    }
    verifications_.lost(member.record.node, error);
    if (!member.peer && !gone) return;
    for (const auto& device : children_.devices)
      tell(device, PeerDown{member.record.node, member.record.incarnation, error, gone});
    if (member.peer) tell(member.peer, PeerClose{error});
    member.peer = nullptr;
    member.connected = false;
  }

  void forget_departed() {
    const TimePoint now = Clock::now();
    forgetting_ = false;
    for (auto entry = members_.begin(); entry != members_.end();) {
      Member& member = entry->second;
      const bool old = !member.here && now - member.departed >= setup_.departed_kept;
      if (old) part(member, {ErrorCode::kPeerDead, "forgotten"}, true);
      forgetting_ = forgetting_ || (!member.here && !old);
      entry = old ? members_.erase(entry) : std::next(entry);
    }
    if (forgetting_) tell_at(this, now + kForgetLook, ForgetDeparted{});
  }

  void peer_ready(const PeerReady& ready) {
    auto found = members_.find(ready.node);
    if (found == members_.end() || found->second.record.incarnation != ready.peer ||
        !found->second.peer)
      return;
    spdlog::info("connected to {}", ready.node);
    found->second.connected = true;
    for (const auto& device : children_.devices)
      tell(device,
           PeerUp{ready.node, ready.peer, found->second.peer, devices_of(found->second.record)});
  }

  /// A peer may speak before its PeerKnown reached the device, or before gossip told us of it: the
  /// first is passed on, the second is repeated by its sender until we know it.
  void stranger_spoke(Message& message) {
    for (auto& [name, member] : members_)
      if (member.peer && member.record.incarnation == message.source)
        return tell(member.peer, PeerReceive{std::move(message)});
  }

  // -- drain -------------------------------------------------------------------------------------

  void handle(const ClientId& client, std::uint64_t id, const DrainRequest& request) {
    if (request.node.empty() || request.node == setup_.node) {
      if (!setup_.drain_asked)
        return refuse(client, id, {ErrorCode::kUnsupported, "this service runs inside a program"});
      setup_.drain_asked(Milliseconds(request.deadline_ms));
      return ok(client, id, nlohmann::json::object());
    }
    const auto found = members_.find(request.node);
    if (found == members_.end()) return refuse(client, id, takes_work(request.node).error());
    const Member& member = found->second;
    if (!member.peer)
      return refuse(
          client, id,
          {member.state == MemberState::kDead ? ErrorCode::kPeerDead : ErrorCode::kPeerLeft,
           fmt::format("node '{}' is not here ({})", request.node, name_of(member.state))});
    if (std::min(member.record.wire_version, setup_.peer.wire_version) < kDrainNodeVersion)
      return refuse(client, id,
                    {ErrorCode::kUnsupported,
                     fmt::format("node '{}' speaks version {}, which cannot be asked: send it "
                                 "SIGTERM, or ask it through its own service",
                                 request.node, member.record.wire_version)});
    tell(member.peer, AskDrain{client, id, request.deadline_ms});
  }

  void drain_asked(const DrainAsked& asked) {
    spdlog::info("node {} asks this one to drain", asked.from);
    if (setup_.drain_asked) setup_.drain_asked(asked.deadline);
  }

  void handle(const ClientId& client, std::uint64_t id, const RemoveRequest& request) {
    if (request.node == setup_.node)
      return refuse(client, id,
                    {ErrorCode::kInvalidArgument, "a node does not remove itself: drain it"});
    if (auto removed = setup_.remove(request.node, request.force); !removed)
      return refuse(client, id, removed.error());
    ok(client, id, nlohmann::json::object());
  }

  caf::response_promise drain() {
    if (!drain_) {
      const bool alone = std::ranges::none_of(
          members_, [](const auto& entry) { return entry.second.peer != nullptr; });
      drain_.emplace(alone ? Milliseconds(0) : kDrainSettle);
      setup_.announce_drain();
      events_.publish(Topic::kMembers, penstock::member_event("draining", setup_.node,
                                                              setup_.incarnation, "asked to"));
    }
    drained_ = make_response_promise();
    tell(caf::actor(this), DrainCheck{});
    return *drained_;
  }

  void drain_check() {
    gather(*this, children_, [this](const Gathered& gathered) {
      std::size_t inbound = 0;
      for (const auto& device : gathered.devices) inbound += device.inbound;
      // A device that does not answer may be doing anything.
      const bool busy = ledger_.in_flight() > 0 || inbound > 0 || gathered.unanswered > 0;
      const auto next = drain_->look(busy, Clock::now());
      if (next == Drain::Next::kShut) refuse_opens();
      if (next != Drain::Next::kDone) return tell_at(this, Clock::now() + kLook, DrainCheck{});
      if (drained_) drained_->deliver(true);
      drained_.reset();
    });
  }

  void refuse_opens() {
    for (const auto& device : children_.devices) tell(device, DrainDevice{});
  }

  NodeActorSetup setup_;
  NodeChildren children_;
  TimePoint started_;
  Ledger ledger_;
  EventLog events_;
  Monitor monitor_;
  TimePoint received_;  // the request that is being answered
  MemoryRequests memory_;
  Verifications verifications_;
  std::map<std::string, Member> members_;
  Asker asker_;  // of the request in hand
  Leases leases_;
  TimePoint leases_due_ = TimePoint::max();
  bool forgetting_ = false;  // a look is due
  std::optional<Drain> drain_;
  std::optional<caf::response_promise> drained_;
};

}  // namespace

caf::actor spawn_node(caf::actor_system& system, NodeActorSetup setup) {
  return system.spawn<NodeActor>(std::move(setup));
}

}  // namespace penstock
