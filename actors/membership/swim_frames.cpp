// Swim: what each kind of frame is answered with. Only questions are: an answer to an answer could
// go on for ever.
#include <algorithm>
#include <bit>

#include "actors/membership/swim.hpp"

namespace penstock {
namespace {

/// Records of one frame: below kMaxGossipBytes whatever else is in it.
constexpr std::size_t kRecordBytes = 48 * 1024;
constexpr std::size_t kMostRelays = 1024;

}  // namespace

void Swim::receive(std::span<const std::byte> bytes, TimePoint now) {
  const auto frame = decode_gossip(bytes);
  if (frame)
    receive(*frame, now);
  else
    ++counters_.malformed_frames;
}

void Swim::receive(const GossipFrame& frame, TimePoint now) {
  if (left_) return;
  if (!started_) start(now);
  const IdentityPtr& sender = frame.sender.who;
  if (sender->node == self_.who->node) return receive_from_own_name(frame, now);
  const bool tabled = std::holds_alternative<Table>(frame.body);
  learn(frame.sender, sender, false, now);
  if (const Index index = table_.find(*sender);
      index != kNone && table_[index].who->incarnation == sender->incarnation) {
    table_[index].load = frame.load;
    table_[index].heard = now;
  }
  for (const Rumor& rumor : frame.rumors) {
    learn(rumor, sender, tabled, now);
    if (left_) return;  // it was about us
  }
  std::visit([&](const auto& body) { on(frame, body, now); }, frame.body);
}

void Swim::receive_from_own_name(const GossipFrame& frame, TimePoint now) {
  if (frame.sender.who->incarnation == self_.who->incarnation) {
    // One of the seeds is our own endpoint under another spelling.
    if (const auto* compare = std::get_if<Compare>(&frame.body))
      seeds_.answered_by_ourselves(compare->endpoint);
    return;
  }
  about_self(frame.sender, now);
  // An older process of this name shall know of us; the others do already.
  if (frame.sender.who->incarnation < self_.who->incarnation &&
      frame.sender.who->endpoint != self_.who->endpoint &&
      (std::holds_alternative<Ping>(frame.body) || std::holds_alternative<Compare>(frame.body)))
    send_bulk(frame.sender.who->endpoint, Gossip{});
}

void Swim::on(const GossipFrame&, const Gossip&, TimePoint) {}

void Swim::on(const GossipFrame& frame, const Ping& ping, TimePoint now) {
  const auto against = held_against(frame.sender, now);
  const bool meant =
      ping.target->node == self_.who->node && ping.target->incarnation == self_.who->incarnation;
  send(frame.sender.who->endpoint, meant ? GossipBody(Ack{ping.sequence}) : GossipBody(Gossip{}),
       against ? &*against : nullptr);
}

void Swim::on(const GossipFrame&, const Ack& ack, TimePoint) {
  const auto probe = std::find_if(probes_.begin(), probes_.end(),
                                  [&](const Probe& p) { return p.sequence == ack.sequence; });
  if (probe != probes_.end()) {
    health_.answered();
    probes_.erase(probe);
    return;
  }
  const auto relay = std::find_if(relays_.begin(), relays_.end(),
                                  [&](const Relay& r) { return r.sequence == ack.sequence; });
  if (relay == relays_.end()) return;
  const Relay answered = std::move(*relay);
  relays_.erase(relay);
  send(answered.asker->endpoint, Ack{answered.asker_sequence});
}

void Swim::on(const GossipFrame& frame, const PingRequest& request, TimePoint now) {
  if (request.target->node == self_.who->node || relays_.size() >= kMostRelays) return;
  Relay relay;
  relay.sequence = next_sequence();
  relay.asker = frame.sender.who;
  relay.asker_sequence = request.sequence;
  relay.nack_at = now + options_.probe_timeout * 4 / 5;
  relay.ends = now + 2 * options_.period;
  relays_.push_back(relay);
  const Index known = table_.find(request.target->node);
  std::optional<Rumor> suspicion;
  if (known != kNone && table_[known].opinion == Opinion::kSuspect)
    suspicion = suspicion_of(table_[known], accuser_);
  send(request.target->endpoint, Ping{relay.sequence, request.target},
       suspicion ? &*suspicion : nullptr);
}

void Swim::on(const GossipFrame&, const Nack& nack, TimePoint) {
  for (Probe& probe : probes_)
    if (probe.sequence == nack.sequence) ++probe.nacks;
}

// A knock is answered even when there is nothing to say, so that it ends.
void Swim::on(const GossipFrame& frame, const Compare& compare, TimePoint now) {
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < kBuckets; ++i)
    if (compare.buckets[i] != table_.digests()[i]) different |= std::uint64_t{1} << i;
  auto against = held_against(frame.sender, now);
  if (different != 0 || against || !compare.endpoint.empty())
    send_tables(frame.sender.who->endpoint, compare.endpoint, different, different,
                std::move(against), now);
}

void Swim::on(const GossipFrame& frame, const Table& table, TimePoint now) {
  if (!table.endpoint.empty()) seeds_.answered(table.endpoint, frame.sender.who->node);
  if (table.wanted != 0)
    send_tables(frame.sender.who->endpoint, "", table.wanted, 0, held_against(frame.sender, now),
                now);
}

void Swim::on(const GossipFrame& frame, const Fetch& fetch, TimePoint) {
  Records records;
  std::size_t bytes = 0;
  const auto add = [&](const RecordPtr& record) {
    if (bytes + record->bytes.size() > kRecordBytes) {
      send_bulk(frame.sender.who->endpoint, std::exchange(records, {}));
      bytes = 0;
    }
    bytes += record->bytes.size();
    records.records.push_back(record);
  };
  for (const Fetch::Name& name : fetch.names) {
    if (name.node == self_.who->node) {
      if (name.incarnation == self_.who->incarnation) add(record_);
      continue;
    }
    const Index index = table_.find(name.node);
    if (index != kNone && table_[index].who->incarnation == name.incarnation &&
        table_[index].record)
      add(table_[index].record);
  }
  if (!records.records.empty()) send_bulk(frame.sender.who->endpoint, std::move(records));
}

void Swim::on(const GossipFrame&, const Records& records, TimePoint now) {
  for (const RecordPtr& record : records.records) {
    const Index index = table_.find(record->record.node);
    if (index == kNone || table_[index].record ||
        table_[index].who->incarnation != record->record.incarnation ||
        table_[index].who->digest != record->digest)
      continue;
    Member& member = table_[index];
    member.record = record;
    if (!member.live()) continue;
    // Passed on only now, so that whoever tells of a member has its record to give.
    if (member.opinion == Opinion::kAlive && !member.tabled) spread(member.rumor(now), now);
    tell(index, "");
  }
  if (!wanted_.empty()) next_fetch_ = now;
}

}  // namespace penstock
