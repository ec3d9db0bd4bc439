#include "tests/sim/world/member.hpp"

#include <utility>

namespace penstock::sim {
namespace {

constexpr Milliseconds kDrainLook{20};

bool is_here(MemberState state) {
  return state != MemberState::kLeft && state != MemberState::kDead;
}

MemberRecord record_of(const SimNode& node, const std::string& endpoint) {
  MemberRecord record = node.record();
  record.service_version = "1.0.0";
  record.provider = "sim";
  record.gossip_endpoint = endpoint;
  record.request_endpoint = endpoint;
  return record;
}

}  // namespace

SimMember::SimMember(Wire& wire, GossipNet& gossip, SimMemberOptions options,
                     SimMemberObserver observer)
    : wire_(wire),
      gossip_(gossip),
      options_(std::move(options)),
      observer_(std::move(observer)),
      node_(wire, options_.node, node_observer()),
      ledger_({}, options_.first_id) {
  Swim::Network network;
  network.send = [this](const std::string& endpoint, const GossipFrame& frame) {
    gossip_.send(options_.node.nic.host, endpoint, frame);
  };
  swim_ = std::make_unique<Swim>(record_of(node_, options_.endpoint), options_.swim,
                                 std::move(network));
  gossip_.listen(options_.endpoint, options_.node.nic.host,
                 [this](const auto& frame) { hear(frame); });
  after_swim();
}

void SimMember::hear(const std::vector<std::byte>& frame) {
  if (crashed_) return;
  if (still_) return unheard_.push_back(frame);
  swim_->receive(std::span(frame), now());
  after_swim();
}

SimNodeObserver SimMember::node_observer() {
  SimNodeObserver node = observer_.node;
  node.ended = [this](TransferResult result) { ended(std::move(result)); };
  node.trouble = [this](const std::string& name) {
    mail_.emplace_back([this, name] {
      swim_->suspect(name, now());
      after_swim();
    });
  };
  node.drain_asked = [this](const std::string&) { mail_.emplace_back([this] { drain(); }); };
  node.connected = [this](const std::string& name) {
    mail_.emplace_back([this, name] {
      if (const auto found = members_.find(name); found != members_.end())
        found->second.connected = found->second.peer;
    });
  };
  return node;
}

// -- clients -------------------------------------------------------------------------------------

Result<void> SimMember::takes_work(const std::string& node) const {
  const auto found = members_.find(node);
  if (found == members_.end()) return fail(ErrorCode::kNotFound, "no node '{}'", node);
  if (found->second.state == MemberState::kDraining)
    return fail(ErrorCode::kDraining, "node '{}' is draining", node);
  return {};
}

Result<TransferId> SimMember::transfer(const TransferSpec& spec) {
  const AdmissionRules rules{name(), options_.plan, Milliseconds(2000),
                             [this](const std::string& node) { return takes_work(node); }};
  auto admitted = admit(spec, rules, node_.regions(), now());
  if (!admitted) return tl::unexpected(admitted.error());
  if (drain_) return fail(ErrorCode::kDraining, "node '{}' is draining", name());
  Admitted one = std::move(admitted->front());
  one.id = ledger_.add("client", 0);
  swim_->set_load(static_cast<std::uint32_t>(ledger_.in_flight()));
  const TransferId id = one.id;
  node_.admit(std::move(one));
  return id;
}

void SimMember::ended(TransferResult result) {
  const auto* entry = ledger_.find(result.id);
  if (entry == nullptr || entry->result)
    return observer_.broke(fmt::format("{} ended twice", result.id));
  ledger_.end(result, now());
  observer_.node.ended(std::move(result));
}

void SimMember::drain() {
  if (drain_) return;
  drain_.emplace(options_.drain_settle);
  swim_->drain(now());
  after_swim();
  drain_check();
}

void SimMember::drain_check() {
  if (crashed_ || drained_) return;
  const bool busy = ledger_.in_flight() > 0 || node_.inbound().open_count() > 0;
  const auto next = drain_->look(busy, now());
  if (next == Drain::Next::kShut) node_.refuse_opens();
  if (next != Drain::Next::kDone)
    return wire_.network.after(kDrainLook, [this] {
      if (!crashed_) mail_.emplace_back([this] { drain_check(); });
    });
  drained_ = true;
  swim_->leave(now());
  for (auto& [name, member] : members_)
    part(member, {ErrorCode::kPeerLeft, "this node is shutting down"}, false);
  observer_.drained();
}

bool SimMember::ask_to_drain(const std::string& node) {
  const auto found = members_.find(node);
  if (found == members_.end() || !found->second.connected) return false;
  node_.ask_to_drain(found->second.record.incarnation);
  return true;
}

// -- members -------------------------------------------------------------------------------------

/// Tells what changed, and sees to the next tick.
void SimMember::after_swim() {
  for (MemberChange& change : swim_->take_changes())
    mail_.emplace_back([this, change = std::move(change)] {
      observer_.changed(change);
      member_changed(change);
    });
  if (swim_->outrun_by() != 0) observer_.outrun(swim_->outrun_by());
  const TimePoint next = std::max(now(), swim_->next_tick());
  if (next >= ticking_ || next == TimePoint::max()) return;
  ticking_ = next;
  wire_.network.after(next - now(), [this, next] {
    if (crashed_ || still_ || ticking_ != next) return;  // another took its place
    ticking_ = TimePoint::max();
    swim_->tick(now());
    after_swim();
  });
}

void SimMember::member_changed(const MemberChange& change) {
  const MemberRecord& record = change.record;
  if (drained_) return;
  if (!is_here(change.state)) return member_departed(change);
  Known& member = members_[record.node];
  if (member.record.incarnation != 0 && member.record.incarnation != record.incarnation)
    part(member, {ErrorCode::kStalePeer, "node '" + record.node + "' restarted"}, true);
  member.record = record;
  member.state = change.state;
  if (member.here) return;
  member.here = member.peer = true;
  node_.meet(record);
}

void SimMember::member_departed(const MemberChange& change) {
  const MemberRecord& record = change.record;
  const auto found = members_.find(record.node);
  if (found == members_.end() || found->second.record.incarnation != record.incarnation) return;
  Known& member = found->second;
  const bool left = change.state == MemberState::kLeft;
  member.state = change.state;
  const ErrorCode code = left          ? ErrorCode::kPeerLeft
                         : change.gone ? ErrorCode::kStalePeer
                                       : ErrorCode::kPeerDead;
  part(member, {code, fmt::format("node '{}' is gone: {}", record.node, change.reason)},
       change.gone);
}

void SimMember::part(Known& member, const Error& error, bool gone) {
  member.here = false;
  if (!member.peer && !gone) return;
  node_.part(member.record, error, gone);
  member.peer = member.connected = false;
}

bool SimMember::here(const std::string& node, Incarnation incarnation) const {
  const auto found = members_.find(node);
  return found != members_.end() && found->second.here &&
         found->second.record.incarnation == incarnation;
}

bool SimMember::connected(const std::string& node) const {
  const auto found = members_.find(node);
  return found != members_.end() && found->second.connected;
}

// -- turns ---------------------------------------------------------------------------------------

std::size_t SimMember::step() {
  if (crashed_ || still_) return 0;
  std::size_t happened = 0;
  if (!mail_.empty()) {
    const auto message = std::move(mail_.front());
    mail_.pop_front();
    message();
    ++happened;
  }
  return happened + node_.step();
}

void SimMember::stand_still(bool still) {
  still_ = still;
  if (still || crashed_) return;
  // What has arrived is heard before the clock is looked at, as GossipSocket does.
  for (const auto& frame : std::exchange(unheard_, {})) hear(frame);
  ticking_ = TimePoint::max();
  after_swim();
}

bool SimMember::restless() { return !crashed_ && !still_ && (!mail_.empty() || node_.restless()); }

void SimMember::crash() {
  crashed_ = true;
  gossip_.close(options_.endpoint);
  mail_.clear();
  node_.crash();
}

}  // namespace penstock::sim
