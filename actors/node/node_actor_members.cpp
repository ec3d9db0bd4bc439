// The node actor: members that come and go, and our own going.
#include <spdlog/spdlog.h>

#include "actors/node/member_report.hpp"
#include "actors/node/node_actor_class.hpp"
#include "actors/peer/peer_actor.hpp"

namespace penstock {
namespace {

/// How long the others need to hear that we drain, and their transfers to come in.
constexpr Milliseconds kDrainSettle{500};
constexpr Milliseconds kForgetLook{10000};

/// A member that takes part, so that there is a peer for it.
bool is_here(MemberState state) {
  return state != MemberState::kLeft && state != MemberState::kDead;
}

}  // namespace

void NodeActor::member_changed(const MemberChange& change) {
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
  member.gone = member.gone && member.record.incarnation == record.incarnation;
  member.record = record;
  member.state = change.state;
  if (!member.here) meet(member, change.reason);
  if (change.state == MemberState::kDraining && !drained)
    member_event("draining", record, change.reason);
}

void NodeActor::member_departed(const MemberChange& change) {
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

void NodeActor::member_event(std::string_view kind, const MemberRecord& record,
                             const std::string& reason) {
  spdlog::info("member {} (incarnation {:x}) {}: {}", record.node, record.incarnation, kind,
               reason);
  if (kind == "dead")
    monitor_.trouble("member", fmt::format("{} is dead: {}", record.node, reason),
                     std::chrono::system_clock::now());
  events_.publish(Topic::kMembers,
                  penstock::member_event(kind, record.node, record.incarnation, reason));
}

void NodeActor::meet(Member& member, const std::string& reason) {
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

void NodeActor::on_exit() {
  setup_.desk->accept = nullptr;
  forgetting_ = true;  // nobody will look
  exiting_ = true;
  for (auto& [name, member] : members_)
    part(member, {ErrorCode::kPeerLeft, "this node is shutting down"}, false);
  // Jobs hold this actor, replies that wait for a release or a drain do, and devices: without this
  // nobody would ever be destroyed, or we would be by our own worker.
  memory_.stop();
  drained_.reset();
  children_ = {};
}

void NodeActor::part(Member& member, const Error& error, bool gone) {
  if (std::exchange(member.here, false)) {
    member.departed = Clock::now();
    if (!forgetting_) tell_at(this, member.departed + kForgetLook, ForgetDeparted{});
    forgetting_ = true;
  }
  member.gone = member.gone || gone;
  verifications_.lost(member.record.node, error);
  if (!exiting_) third_party_.node_lost(member.record.node, error, gone, Clock::now());
  if (!member.peer && !gone) return;
  for (const auto& device : children_.devices)
    tell(device, PeerDown{member.record.node, member.record.incarnation, error, gone});
  if (member.peer) tell(member.peer, PeerClose{error});
  member.peer = nullptr;
  member.connected = false;
}

void NodeActor::forget_departed() {
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

void NodeActor::peer_ready(const PeerReady& ready) {
  auto found = members_.find(ready.node);
  if (found == members_.end() || found->second.record.incarnation != ready.peer ||
      !found->second.peer)
    return;
  spdlog::info("connected to {}", ready.node);
  found->second.connected = true;
  third_party_.node_back(ready.node, Clock::now());
  for (const auto& device : children_.devices)
    tell(device,
         PeerUp{ready.node, ready.peer, found->second.peer, devices_of(found->second.record)});
}

void NodeActor::stranger_spoke(Message& message) {
  for (auto& [name, member] : members_)
    if (member.peer && member.record.incarnation == message.source)
      return tell(member.peer, PeerReceive{std::move(message)});
}

void NodeActor::handle(const ClientId& client, std::uint64_t id, const DrainRequest& request) {
  if (request.node.empty() || request.node == setup_.node) {
    if (!setup_.drain_asked)
      return refuse(client, id, {ErrorCode::kUnsupported, "this service runs inside a program"});
    setup_.drain_asked(Milliseconds(request.deadline_ms));
    return ok(client, id, nlohmann::json::object());
  }
  const auto found = members_.find(request.node);
  if (found == members_.end()) return refuse(client, id, takes_work(request.node).error());
  const Member& member = found->second;
  if (auto can = can_be_asked(member, kDrainNodeVersion,
                              "cannot be asked: send it SIGTERM, or ask it through its own "
                              "service");
      !can)
    return refuse(client, id, can.error());
  tell(member.peer, AskDrain{client, id, request.deadline_ms});
}

void NodeActor::drain_asked(const DrainAsked& asked) {
  spdlog::info("node {} asks this one to drain", asked.from);
  if (setup_.drain_asked) setup_.drain_asked(asked.deadline);
}

void NodeActor::handle(const ClientId& client, std::uint64_t id, const RemoveRequest& request) {
  if (request.node == setup_.node)
    return refuse(client, id,
                  {ErrorCode::kInvalidArgument, "a node does not remove itself: drain it"});
  if (auto removed = setup_.remove(request.node, request.force); !removed)
    return refuse(client, id, removed.error());
  ok(client, id, nlohmann::json::object());
}

caf::response_promise NodeActor::drain() {
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

void NodeActor::drain_check() {
  gather(*this, children_, [this](const Gathered& gathered) {
    std::size_t inbound = 0;
    for (const auto& device : gathered.devices) inbound += device.inbound;
    // A device that does not answer may be doing anything.
    const bool busy = ledger_.in_flight() > 0 || inbound > 0 || gathered.unanswered > 0 ||
                      third_party_.delegations().unfinished() > 0;
    const auto next = drain_->look(busy, Clock::now());
    if (next == Drain::Next::kShut) refuse_opens();
    if (next != Drain::Next::kDone) return tell_at(this, Clock::now() + kLook, DrainCheck{});
    if (drained_) drained_->deliver(true);
    drained_.reset();
  });
}

void NodeActor::refuse_opens() {
  for (const auto& device : children_.devices) tell(device, DrainDevice{});
}

}  // namespace penstock
