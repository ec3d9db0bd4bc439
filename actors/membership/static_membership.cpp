#include "actors/membership/static_membership.hpp"

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

/// First knocks are quick, since a cluster starts together; then at the pace of heartbeats.
constexpr Milliseconds kFirstKnock{50};
/// A suspect is asked again and again: one lost frame must not kill it.
constexpr Milliseconds kSuspectHeartbeat{100};
/// What strangers can make us remember.
constexpr std::size_t kMostMembers = 4096;

}  // namespace

StaticMembership::StaticMembership(MemberRecord self, Options options, Network network)
    : self_(std::move(self)),
      options_(std::move(options)),
      network_(std::move(network)),
      random_(options_.seed) {
  for (const std::string& endpoint : options_.endpoints)
    if (endpoint != self_.gossip_endpoint)
      contacts_.push_back({endpoint, "", TimePoint::min(), kFirstKnock});
}

// -- frames --------------------------------------------------------------------------------------

void StaticMembership::receive(std::span<const std::byte> frame, TimePoint now) {
  const auto decoded = decode_gossip(frame);
  if (!decoded) {
    ++malformed_frames_;
    return;
  }
  if (const auto* announce = std::get_if<Announce>(&*decoded))
    receive_announce(*announce, now);
  else if (const auto* heartbeat = std::get_if<Heartbeat>(&*decoded))
    receive_heartbeat(*heartbeat, now);
  else
    receive_leave(std::get<Leave>(*decoded));
}

void StaticMembership::receive_announce(const Announce& announce, TimePoint now) {
  const MemberRecord& record = announce.record;
  // An answer to our knock repeats the endpoint that we knocked at, however it calls itself.
  if (!announce.reply)
    for (Contact& contact : contacts_)
      if (contact.endpoint == announce.endpoint) contact.node = record.node;
  if (own_name(record.node, record.incarnation, record.gossip_endpoint)) {
    // One of the configured endpoints is our own under another spelling: stop knocking there.
    if (announce.reply && record.incarnation == self_.incarnation)
      for (Contact& contact : contacts_)
        if (contact.endpoint == announce.endpoint) contact.node = self_.node;
    return;
  }
  Member* member = admit(record, now);
  if (member == nullptr) return;
  if (member->state != MemberState::kLeft) heard(*member, now);
  if (announce.reply && member->state == MemberState::kAlive)
    announce_to(record.gossip_endpoint, false, announce.endpoint);
}

void StaticMembership::receive_heartbeat(const Heartbeat& heartbeat, TimePoint now) {
  if (own_name(heartbeat.node, heartbeat.incarnation, heartbeat.endpoint)) return;
  const auto known = members_.find(heartbeat.node);
  if (known == members_.end() || known->second.record.incarnation < heartbeat.incarnation)
    return announce_to(heartbeat.endpoint, true, heartbeat.endpoint);
  Member& member = known->second;
  if (member.record.incarnation > heartbeat.incarnation || member.state == MemberState::kLeft ||
      replaced_at_its_endpoint(member.record))
    return;
  heard(member, now);
  if (heartbeat.reply) heartbeat_to(member, false);
}

void StaticMembership::receive_leave(const Leave& leave) {
  if (leave.node == self_.node) return;
  const auto known = members_.find(leave.node);
  if (known != members_.end() && known->second.record.incarnation == leave.incarnation) {
    if (known->second.state != MemberState::kLeft)
      change(known->second, MemberState::kLeft, "left");
    return;
  }
  if (known != members_.end() && known->second.record.incarnation > leave.incarnation) return;
  if (known == members_.end() && members_.size() >= kMostMembers) return;
  // It left before its announcement came: remembered, so that a late one does not bring it back.
  Member& member = members_[leave.node];
  if (member.state == MemberState::kAlive && member.record.incarnation != 0)
    change(member, MemberState::kDead, fmt::format("restarted as {}", leave.incarnation), true);
  member.record = {};
  member.record.node = leave.node;
  member.record.incarnation = leave.incarnation;
  member.state = MemberState::kLeft;
  member.reason = "left";
}

// -- the lattice ---------------------------------------------------------------------------------

// Per name: a higher incarnation replaces a lower one; within one, left is final. Death is only our
// opinion: it ends when the member speaks. So the order in which frames come does not matter.
StaticMembership::Member* StaticMembership::admit(const MemberRecord& record, TimePoint now) {
  const auto known = members_.find(record.node);
  if (known == members_.end() && members_.size() >= kMostMembers) return nullptr;
  if (known != members_.end() && known->second.record.incarnation > record.incarnation)
    return nullptr;
  if (known != members_.end() && known->second.record.incarnation == record.incarnation) {
    if (known->second.state == MemberState::kLeft) known->second.record = record;
    return replaced_at_its_endpoint(record) ? nullptr : &known->second;
  }
  if (known != members_.end() && known->second.state == MemberState::kAlive)
    change(known->second, MemberState::kDead, fmt::format("restarted as {}", record.incarnation),
           true);
  Member& member = members_[record.node];
  member = {};
  member.record = record;
  member.last_heard = now;
  member.next_heartbeat = now;
  if (replaced_at_its_endpoint(record)) {
    member.state = MemberState::kDead;
    member.reason = "replaced at its endpoint";
    return nullptr;
  }
  replace_at_its_endpoint(record);
  change(member, MemberState::kAlive, "announced itself");
  return &member;
}

void StaticMembership::heard(Member& member, TimePoint now) {
  member.last_heard = now;
  member.suspect_until = TimePoint::max();
  if (member.state != MemberState::kDead) return;
  member.next_heartbeat = now;
  change(member, MemberState::kAlive, "spoke again");
}

bool StaticMembership::own_name(const std::string& node, Incarnation incarnation,
                                const std::string& endpoint) {
  if (node != self_.node) return false;
  if (incarnation > self_.incarnation && endpoint != self_.gossip_endpoint) ++duplicate_names_;
  return true;
}

// One endpoint is one process at a time: whoever started later has it now.
bool StaticMembership::replaced_at_its_endpoint(const MemberRecord& record) const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    const MemberRecord& other = entry.second.record;
    return other.node != record.node && !other.gossip_endpoint.empty() &&
           other.gossip_endpoint == record.gossip_endpoint &&
           other.incarnation > record.incarnation;
  });
}

void StaticMembership::replace_at_its_endpoint(const MemberRecord& record) {
  if (record.gossip_endpoint.empty()) return;
  for (auto& [node, member] : members_)
    if (node != record.node && member.record.gossip_endpoint == record.gossip_endpoint &&
        member.record.incarnation < record.incarnation && member.state == MemberState::kAlive)
      change(member, MemberState::kDead,
             fmt::format("replaced by '{}' at its endpoint", record.node));
}

void StaticMembership::change(Member& member, MemberState state, std::string reason,
                              bool replaced) {
  member.state = state;
  member.reason = std::move(reason);
  member.suspect_until = TimePoint::max();
  changes_.push_back(
      {member.record, state, member.reason, replaced || state == MemberState::kLeft});
  if (state == MemberState::kAlive) return;
  for (Contact& contact : contacts_) {
    if (contact.node != member.record.node) continue;
    contact.interval = kFirstKnock;
    contact.next_knock = TimePoint::min();
  }
}

// -- sending -------------------------------------------------------------------------------------

void StaticMembership::tick(TimePoint now) {
  if (left_) return;
  bury(now);
  knock(now);
  beat(now);
}

void StaticMembership::bury(TimePoint now) {
  for (auto& [node, member] : members_) {
    if (member.state != MemberState::kAlive || death_of(member) > now) continue;
    const bool suspected = member.suspect_until <= now;
    change(member, MemberState::kDead,
           suspected ? fmt::format("no answer within {} ms after a connection to it closed",
                                   options_.suspect_for.count())
                     : fmt::format("silent for {} ms", options_.dead_after.count()));
  }
}

void StaticMembership::knock(TimePoint now) {
  for (Contact& contact : contacts_) {
    if (quiet(contact) || contact.next_knock > now) continue;
    announce_to(contact.endpoint, true, contact.endpoint);
    contact.next_knock = now + jittered(contact.interval);
    contact.interval = std::min(contact.interval * 2, options_.heartbeat);
  }
}

void StaticMembership::beat(TimePoint now) {
  for (auto& [node, member] : members_) {
    if (member.state != MemberState::kAlive || member.next_heartbeat > now) continue;
    const bool suspected = member.suspect_until != TimePoint::max();
    heartbeat_to(member, suspected);
    member.next_heartbeat =
        now + (suspected ? Clock::duration(kSuspectHeartbeat) : jittered(options_.heartbeat));
  }
}

TimePoint StaticMembership::next_tick() const {
  TimePoint next = TimePoint::max();
  if (left_) return next;
  for (const Contact& contact : contacts_)
    if (!quiet(contact)) next = std::min(next, contact.next_knock);
  for (const auto& [node, member] : members_)
    if (member.state == MemberState::kAlive)
      next = std::min({next, member.next_heartbeat, death_of(member)});
  return next;
}

void StaticMembership::suspect(const std::string& node, TimePoint now) {
  const auto known = members_.find(node);
  if (left_ || known == members_.end()) return;
  Member& member = known->second;
  if (member.state != MemberState::kAlive || member.suspect_until != TimePoint::max()) return;
  member.suspect_until = now + options_.suspect_for;
  member.next_heartbeat = now;
  beat(now);
}

void StaticMembership::leave(TimePoint) {
  if (left_) return;
  for (const auto& [node, member] : members_)
    if (member.state == MemberState::kAlive)
      network_.send(endpoint_of(member), encode(GossipFrame(Leave{self_.node, self_.incarnation})));
  left_ = true;
}

void StaticMembership::announce_to(const std::string& endpoint, bool reply,
                                   const std::string& knocked) {
  if (!left_ && !endpoint.empty())
    network_.send(endpoint, encode(GossipFrame(Announce{self_, reply, knocked})));
}

void StaticMembership::heartbeat_to(const Member& member, bool reply) {
  if (!left_ && !endpoint_of(member).empty())
    network_.send(endpoint_of(member),
                  encode(GossipFrame(
                      Heartbeat{self_.node, self_.incarnation, self_.gossip_endpoint, reply})));
}

// -- small questions -----------------------------------------------------------------------------

// Whoever answered there is alive (or is this node): no need to knock.
bool StaticMembership::quiet(const Contact& contact) const {
  if (contact.node == self_.node) return true;
  for (const auto& [node, member] : members_)
    if (member.state == MemberState::kAlive &&
        (contact.node == node || contact.endpoint == member.record.gossip_endpoint))
      return true;
  return false;
}

// The endpoint that is known to work from here, where one is configured.
const std::string& StaticMembership::endpoint_of(const Member& member) const {
  for (const Contact& contact : contacts_)
    if (contact.node == member.record.node) return contact.endpoint;
  return member.record.gossip_endpoint;
}

TimePoint StaticMembership::death_of(const Member& member) const {
  return std::min(member.last_heard + options_.dead_after, member.suspect_until);
}

// Up to a tenth earlier, so that nodes that started together do not speak in step for ever.
Clock::duration StaticMembership::jittered(Milliseconds interval) {
  const Clock::duration whole = interval;
  return whole - whole / 10 * static_cast<int>(random_() % 101) / 100;
}

std::vector<MemberChange> StaticMembership::take_changes() { return std::exchange(changes_, {}); }

std::vector<MemberChange> StaticMembership::members() const {
  std::vector<MemberChange> all;
  for (const auto& [node, member] : members_)
    all.push_back({member.record, member.state, member.reason});
  return all;
}

}  // namespace penstock
