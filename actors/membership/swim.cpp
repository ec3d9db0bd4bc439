#include "actors/membership/swim.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

/// What a frame takes apart from its rumours and the sender's endpoint and name.
constexpr std::size_t kFrameOverhead = 128;
constexpr std::size_t kGossipTargets = 3;
constexpr std::size_t kToldOfLeaving = 32;
constexpr std::chrono::seconds kSweep{5};

RecordPtr stored(const MemberRecord& self) {
  auto record = store_record(encode(self));
  if (record) return *record;
  auto plain = std::make_shared<StoredRecord>();
  plain->record = self;
  return plain;
}

}  // namespace

Swim::Swim(MemberRecord self, Options options, Network network)
    : options_(std::move(options)),
      network_(std::move(network)),
      record_(stored(self)),
      random_(options_.seed),
      table_(random_()),
      seeds_(options_.seeds, self.gossip_endpoint, random_()) {
  self_.who = make_identity(self.node, self.incarnation, self.gossip_endpoint, record_->digest);
  accuser_ = static_cast<std::uint32_t>(self_.who->name_hash ^ self.incarnation) | 1;
  sequence_ = static_cast<std::uint32_t>(random_());
  table_.self_changed({}, self_);
}

// -- time ----------------------------------------------------------------------------------------

void Swim::start(TimePoint now) {
  started_ = true;
  // Nodes that started together shall not ask in step.
  const auto part = [&](Clock::duration whole) {
    return now + whole / 1000 * static_cast<int>(random_() % 1000);
  };
  next_period_ = part(options_.period);
  next_push_pull_ = part(options_.push_pull);
  next_reconnect_ = part(5 * options_.period);
  next_sweep_ = now + kSweep;
  next_knock_ = now;
  last_gossip_ = now - options_.period;
  if (next_gossip_ != TimePoint::max()) next_gossip_ = now;
  if (next_fetch_ != TimePoint::max()) next_fetch_ = now;
}

void Swim::tick(TimePoint now) {
  if (left_) return;
  if (!started_) start(now);
  const Clock::duration late = now - next_tick();
  if (options_.lifeguard && late > options_.period) stood_still(late);
  drive_probes(now);
  drive_relays(now);
  bury(now);
  if (next_period_ <= now) start_period(now);
  if (next_knock_ <= now) {
    for (const std::string& seed : seeds_.due(alive(), now)) knock(seed, now);
    next_knock_ =
        std::max(now + Milliseconds(50), std::min(seeds_.next(alive()), now + options_.period));
  }
  if (next_fetch_ <= now) fetch(now);
  if (next_gossip_ <= now) gossip(now);
  if (next_push_pull_ <= now) push_pull(now);
  if (next_reconnect_ <= now) reconnect(now);
  if (next_sweep_ <= now) forget_ended(now);
}

TimePoint Swim::next_tick() const {
  if (left_) return TimePoint::max();
  if (!started_) return TimePoint::min();
  TimePoint next = std::min({next_period_, next_push_pull_, next_reconnect_, next_sweep_,
                             next_knock_, next_gossip_, next_fetch_});
  for (const Probe& probe : probes_)
    next = std::min({next, probe.again, probe.helpers_at, probe.ends});
  for (const Relay& relay : relays_) next = std::min({next, relay.nack_at, relay.ends});
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  return next;
}

// A pause of this process (stopped, starved of processor time) is not the silence of others.
void Swim::stood_still(Clock::duration time) {
  health_.stood_still();
  for (Probe& probe : probes_) {
    if (probe.helpers_at != TimePoint::max()) probe.helpers_at += time;
    if (probe.again != TimePoint::max()) probe.again += time;
    probe.ends += time;
  }
  relays_.clear();
  std::set<std::pair<TimePoint, Index>> later;
  for (const auto& [deadline, index] : deadlines_) {
    table_[index].suspicion->postpone(time);
    later.emplace(deadline + time, index);
  }
  deadlines_ = std::move(later);
}

// -- passing on ----------------------------------------------------------------------------------

void Swim::spread(const Rumor& rumor, TimePoint now) {
  queue_.add(rumor);
  next_gossip_ = std::min(next_gossip_, std::max(now, last_gossip_ + options_.period / 2));
}

void Swim::gossip(TimePoint now) {
  last_gossip_ = now;
  for (Index index : table_.pick(kGossipTargets))
    if (!queue_.empty()) send(table_[index].who->endpoint, Gossip{});
  next_gossip_ =
      queue_.empty() || table_.living().empty() ? TimePoint::max() : now + options_.period / 2;
}

std::size_t Swim::sends() const {
  const double nodes = static_cast<double>(table_.living().size()) + 1;
  return static_cast<std::size_t>(std::ceil(options_.retransmit * std::log(nodes + 1)));
}

void Swim::send(const std::string& endpoint, GossipBody body, const Rumor* first) {
  if (endpoint.empty()) return;
  GossipFrame frame{self_, load_, std::move(body), {}};
  std::size_t taken = kFrameOverhead + wire_bytes(self_);
  if (first != nullptr) {
    taken += wire_bytes(*first);
    frame.rumors.push_back(*first);
  }
  if (!queue_.empty() && taken < options_.frame_bytes)
    queue_.take(options_.frame_bytes - taken, sends(), frame.rumors);
  network_.send(endpoint, std::move(frame));
}

void Swim::send_bulk(const std::string& endpoint, GossipBody body, std::vector<Rumor> rumors) {
  if (!endpoint.empty())
    network_.send(endpoint, GossipFrame{self_, load_, std::move(body), std::move(rumors)});
}

/// What a sender that believes itself alive should know of how it stands here.
std::optional<Rumor> Swim::held_against(const Rumor& sender, TimePoint now) const {
  const Index index = table_.find(*sender.who);
  if (index == kNone) return std::nullopt;
  const Member& member = table_[index];
  if (member.standing() <= sender.standing()) return std::nullopt;
  Rumor rumor = member.rumor(now);
  if (member.opinion == Opinion::kSuspect) rumor = suspicion_of(member, accuser_);
  return rumor;
}

// -- what others decide --------------------------------------------------------------------------

void Swim::drain(TimePoint now) {
  if (left_ || self_.draining) return;
  Rumor changed = self_;
  changed.draining = true;
  ++changed.revision;
  change_self(changed, now);
}

void Swim::leave(TimePoint) {
  if (left_) return;
  self_.opinion = Opinion::kLeft;
  self_.revision = kFinalRevision;
  for (Index index : table_.pick(kToldOfLeaving)) send(table_[index].who->endpoint, Gossip{});
  left_ = true;
}

void Swim::suspect(const std::string& node, TimePoint now) {
  const Index index = table_.find(node);
  if (left_ || index == kNone || !table_[index].live()) return;
  if (!started_) start(now);
  ask(index, true, now);
}

void Swim::suspect_at(const std::string& endpoint, TimePoint now) {
  const Index index = table_.at_endpoint(endpoint);
  if (index != kNone) suspect(table_[index].who->node, now);
}

Result<void> Swim::remove(const std::string& node, bool force, TimePoint now) {
  if (node == self_.who->node)
    return fail(ErrorCode::kInvalidArgument, "'{}' is this node: drain it instead", node);
  const Index index = table_.find(node);
  if (index == kNone) return fail(ErrorCode::kNotFound, "no node '{}' is known here", node);
  const Member& member = table_[index];
  if (member.opinion == Opinion::kAlive && !force)
    return fail(ErrorCode::kBusy, "'{}' answers: drain it, or remove it with force", node);
  if (member.opinion == Opinion::kLeft) return {};
  Rumor end = member.rumor(now);
  end.opinion = Opinion::kLeft;
  end.revision = kFinalRevision;
  end.ended_s = 0;
  apply(index, end, "removed by an operator", now);
  return {};
}

void Swim::forget_ended(TimePoint now) {
  next_sweep_ = now + kSweep;
  for (Index index = 0; index < table_.places().size(); ++index) {
    const Member& member = table_[index];
    if (member.who && !member.live() && now - member.ended >= options_.forget_dead)
      table_.remove(index);
  }
}

Seeds::Alive Swim::alive() const {
  return {[this](const std::string& node) {
            const Index index = table_.find(node);
            return index != kNone && table_[index].live();
          },
          [this](const std::string& endpoint) {
            const Index index = table_.at_endpoint(endpoint);
            return index != kNone && table_[index].live();
          }};
}

}  // namespace penstock
