#include "tests/sim/world/member.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace penstock::sim {
namespace {

constexpr Milliseconds kDrainLook{20};

bool is_here(MemberState state) {
  return state != MemberState::kLeft && state != MemberState::kDead;
}

/// All regions are for everybody.
std::shared_ptr<const RegionTable> no_regions() { return std::make_shared<RegionTable>(); }

/// As a client sends it.
std::shared_ptr<const std::vector<std::byte>> request_of(const TransferSpec& spec) {
  static constexpr const char* kPacking[] = {"auto", "always", "never"};
  const auto& list = std::get<Ranges>(spec.layout).ranges.bytes();
  const auto* first = reinterpret_cast<const std::uint8_t*>(list.data());
  const TransferTarget& target = spec.targets.front();
  nlohmann::json one = {
      {"direction", spec.direction == Direction::kWrite ? "write" : "read"},
      {"region", spec.region},
      {"targets", {{{"node", target.node}, {"region", target.region}, {"epoch", target.epoch}}}},
      {"layout",
       {{"kind", "ranges"},
        {"ranges", nlohmann::json::binary(std::vector<std::uint8_t>(first, first + list.size()))}}},
      {"lane", spec.lane == Lane::kUrgent ? "urgent" : "bulk"},
      {"weight", spec.weight},
      {"packing", kPacking[static_cast<std::size_t>(spec.packing)]},
      {"path", kPathChoices[static_cast<std::size_t>(spec.path)]}};
  if (!spec.notify.empty()) one["notify"] = spec.notify;
  const auto packed = nlohmann::json::to_msgpack(nlohmann::json{
      {"v", kProtocolVersion}, {"id", 0}, {"op", "transfer"}, {"transfers", {std::move(one)}}});
  const auto* bytes = reinterpret_cast<const std::byte*>(packed.data());
  return std::make_shared<const std::vector<std::byte>>(bytes, bytes + packed.size());
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
      ledger_({}, options_.first_id),
      streams_({.cancel = [this](TransferId part) { node_.cancel(part); },
                .ended = [this](TransferResult result) { ended(std::move(result)); },
                .remembered = [this](TransferId id) { return ledger_.find(id) != nullptr; }}),
      third_party_({options_.node.name,
                    {.shadows = options_.shadows},
                    no_regions(),
                    options_.node.shadows,
                    nullptr},
                   third_party_port()) {
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
      const auto found = members_.find(name);
      if (found == members_.end()) return;
      found->second.connected = found->second.peer;
      if (found->second.peer) third_party_.node_back(name, now());
    });
  };
  node.node_asked = [this](const std::string& from, Incarnation peer, std::uint64_t sequence,
                           const Question& question) {
    mail_.emplace_back([=, this] { node_asked(from, peer, sequence, question); });
  };
  node.node_answered = [this](std::uint64_t token, const Result<Answer>& answer) {
    mail_.emplace_back([=, this] {
      third_party_.answered(token, answer, now());
      watch_shadows();
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

/// What was promised to a stream before a drain began goes on.
Result<Admitted> SimMember::checked(const TransferSpec& spec, bool part_of_stream) {
  const AdmissionRules rules{
      name(), options_.plan, Milliseconds(2000),
      [this, part_of_stream](const std::string& node) -> Result<void> {
        auto takes = takes_work(node);
        if (!takes && part_of_stream && takes.error().code == ErrorCode::kDraining) return {};
        return takes;
      }};
  auto admitted = admit(spec, rules, node_.regions(), now());
  if (!admitted) return tl::unexpected(admitted.error());
  if (drain_ && !part_of_stream) return fail(ErrorCode::kDraining, "node '{}' is draining", name());
  return std::move(admitted->front());
}

Result<TransferId> SimMember::open_stream(const TransferSpec& terms) {
  if (auto takes = terms.targets.front().node == name() ? Result<void>()
                                                        : takes_work(terms.targets.front().node);
      !takes)
    return tl::unexpected(takes.error());
  if (drain_) return fail(ErrorCode::kDraining, "node '{}' is draining", name());
  const TransferId id = ledger_.add("client", 0);
  const TimePoint deadline = now() + Milliseconds(terms.deadline_ms);
  streams_.open(id, {terms, terms.targets.front().node, "client", now(), now(), deadline});
  wire_.network.after(deadline - now(), [this] {
    if (!crashed_) mail_.emplace_back([this] { streams_.expire(now()); });
  });
  return id;
}

Result<TransferId> SimMember::append(const AppendRequest& part) {
  auto next = streams_.next(part);
  if (next && next->repeated != 0) return next->repeated;
  auto one = next ? checked(next->spec, true) : tl::unexpected(next.error());
  if (!one) {
    streams_.refused(part.stream, part.part, one.error(), now());
    return tl::unexpected(one.error());
  }
  one->deadline = next->deadline;
  one->stream = part.stream;
  one->part = part.part;
  one->id = ledger_.add("client", 0);
  streams_.appended(part.stream, one->id, one->plan->bytes());
  const TransferId id = one->id;
  node_.admit(std::move(*one));
  return id;
}

Result<void> SimMember::close_stream(const CloseRequest& request) {
  auto can = streams_.can_close(request);
  streams_.close(request, now());
  return can;
}

Result<TransferId> SimMember::transfer(const TransferSpec& spec) {
  auto checked_one = checked(spec, false);
  if (!checked_one) return tl::unexpected(checked_one.error());
  Admitted one = std::move(*checked_one);
  one.id = ledger_.add("client", 0);
  swim_->set_load(static_cast<std::uint32_t>(ledger_.in_flight()));
  const TransferId id = one.id;
  node_.admit(std::move(one));
  return id;
}

// -- third-party transfers -----------------------------------------------------------------------

ThirdPartyTransfers::Port SimMember::third_party_port() {
  return {
      .ask =
          [this](const std::string& node, std::uint64_t token, Question question,
                 TimePoint deadline) {
            const auto found = members_.find(node);
            if (found != members_.end() && found->second.peer &&
                node_.ask_for_node(found->second.record.incarnation, token, question, deadline))
              return;
            mail_.emplace_back([this, token] {
              third_party_.answered(token, fail(ErrorCode::kPeerLeft, "it is gone"), now());
            });
          },
      .labels = [](const std::string&) { return std::map<std::string, std::string>(); },
      .run = [this](const TransferRequest& request, const ClientId&, const Asker& asker,
                    TransferId shadow) -> Result<TransferId> {
        const TransferSpec& spec = request.transfers.front();
        auto as = checked(spec, false).map([this, shadow](Admitted&& one) {
          one.shadow = shadow;
          one.id = ledger_.add("client", 0);
          const TransferId id = one.id;
          node_.admit(std::move(one));
          return id;
        });
        observer_.carried_out(std::stoull(asker.who), as, now() + Milliseconds(spec.deadline_ms));
        return as;
      },
      .cancel = [this](TransferId transfer) { node_.cancel(transfer); },
      .ended =
          [this](TransferResult result) {
            const auto executor = members_.find(result.on);
            if (result.remote == TransferResult::Remote::kQuiet || result.node != name() ||
                executor == members_.end())
              return ended(std::move(result));
            node_.give_up(executor->second.record.incarnation, result.id, result.error);
            shadow_ended(result, executor->second.record.incarnation, now() + options_.own_pages);
          }};
}

/// When its pages here are quiet, as node_actor does.
void SimMember::shadow_ended(const TransferResult& result, Incarnation executor, TimePoint until) {
  wire_.network.after(kDrainLook, [this, result, executor, until] {
    if (crashed_) return;
    mail_.emplace_back([this, result, executor, until] {
      if (node_.inbound().is_open_for(executor, result.id) && now() < until)
        return shadow_ended(result, executor, until);
      ended(result);
    });
  });
}

Result<TransferId> SimMember::transfer_on(const std::string& executor, const TransferSpec& spec) {
  if (auto takes = takes_work(executor); !takes) return tl::unexpected(takes.error());
  if (!members_.at(executor).peer) return fail(ErrorCode::kPeerLeft, "{} is not here", executor);
  if (drain_) return fail(ErrorCode::kDraining, "node '{}' is draining", name());
  const TransferTarget& target = spec.targets.front();
  Shadows::Asked asked;
  asked.id = ledger_.add("client", Ledger::kElsewhere);
  asked.on = executor;
  asked.node = target.node;
  asked.region = spec.region;
  asked.remote_region = target.region;
  asked.direction = spec.direction;
  asked.lane = spec.lane;
  asked.client =
      std::to_string(asked.id);  // so that the executor's side can be told of whose it is
  asked.admin = true;
  asked.request = request_of(spec);
  asked.received = asked.accepted = now();
  asked.deadline = now() + Milliseconds(spec.deadline_ms);
  const TransferId id = asked.id;
  // As a client's reply goes before its event.
  mail_.emplace_back([this, asked = std::move(asked)] {
    third_party_.shadows().start(asked, now());
    watch_shadows();
  });
  return id;
}

void SimMember::cancel(TransferId transfer) {
  if (streams_.cancel(transfer, now())) return;
  if (!third_party_.shadows().cancel(transfer, now())) return node_.cancel(transfer);
  watch_shadows();
}

void SimMember::node_asked(const std::string& from, Incarnation peer, std::uint64_t sequence,
                           const Question& question) {
  const auto found = members_.find(from);
  if (found == members_.end() || found->second.record.incarnation != peer || drained_) return;
  const auto* look = std::get_if<LookAtDelegated>(&question);
  if (look == nullptr) {
    node_.answer_for_node(peer, sequence, third_party_.asked(from, peer, question, now()));
    return watch_shadows();
  }
  DelegatedSeen seen;
  for (const TransferId id : look->transfers) {
    const auto place = third_party_.delegations().place_of(from, peer, id, now());
    seen.transfers.push_back({place.running != 0 ? "running" : place.state, 0, 0});
  }
  node_.answer_for_node(peer, sequence, std::move(seen));
}

void SimMember::watch_shadows() {
  const TimePoint next = third_party_.shadows().next_tick();
  if (next >= shadows_due_) return;
  shadows_due_ = next;
  wire_.network.after(std::max(next - now(), Clock::duration(0)), [this, next] {
    if (crashed_) return;
    mail_.emplace_back([this, next] {
      if (next != shadows_due_) return;
      shadows_due_ = TimePoint::max();
      third_party_.shadows().tick(now());
      watch_shadows();
    });
  });
}

void SimMember::ended(TransferResult result) {
  const auto* entry = ledger_.find(result.id);
  if (entry == nullptr || entry->result)
    return observer_.broke(fmt::format("{} ended twice", result.id));
  third_party_.delegations().ended(result, now());
  ledger_.end(result, now());
  observer_.node.ended(result);
  if (result.stream != 0) streams_.part_ended(result, now());
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
  const bool busy = ledger_.in_flight() > 0 || node_.inbound().open_count() > 0 ||
                    third_party_.delegations().unfinished() > 0;
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
  if (!drained_) third_party_.node_lost(member.record.node, error, gone, now());
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
