// Swim: asking members whether they are there, by ourselves and through others.
#include <algorithm>

#include "actors/membership/swim.hpp"

namespace penstock {
namespace {

/// A member whose connection closed is asked again and again: one lost frame must not kill it.
constexpr Milliseconds kAskClosedAgain{100};
constexpr std::size_t kSuspectsAskedAgain = 8;

}  // namespace

void Swim::start_period(TimePoint now) {
  if (const Index index = table_.next_in_round(); index != kNone) ask(index, false, now);
  if (options_.lifeguard) {
    // Those whom we accuse hear of it from us until they contradict.
    std::size_t asked = 0;
    for (const auto& [deadline, index] : deadlines_) {
      if (!table_[index].suspicion->accused_by(accuser_)) continue;
      if (++asked > kSuspectsAskedAgain) break;
      ping(index, 0);
    }
  }
  next_period_ = now + scaled(options_.period);
}

void Swim::ask(Index index, bool closed, TimePoint now) {
  const Member& member = table_[index];
  for (const Probe& probe : probes_)
    if (probe.member == index && probe.closed && still_concerns(probe)) return;
  Probe probe;
  probe.member = index;
  probe.incarnation = member.who->incarnation;
  probe.sequence = next_sequence();
  probe.closed = closed;
  if (closed) {
    probe.again = now + kAskClosedAgain;
    probe.helpers_at = now + kAskClosedAgain;
    probe.ends = now + options_.closed_grace * (1 + std::min(health_.score(), 1));
  } else {
    probe.again = TimePoint::max();
    probe.helpers_at = now + scaled(options_.probe_timeout);
    probe.ends = now + scaled(options_.period);
  }
  probes_.push_back(probe);
  ping(index, probe.sequence);
}

void Swim::ping(Index index, std::uint32_t sequence) {
  const Member& member = table_[index];
  std::optional<Rumor> suspicion;
  // The suspect is the first who should know (Lifeguard's buddy system).
  if (options_.lifeguard && member.opinion == Opinion::kSuspect)
    suspicion = suspicion_of(member, accuser_);
  send(member.who->endpoint, Ping{sequence, member.who}, suspicion ? &*suspicion : nullptr);
}

/// Its connection closed too, or it is known to have ended.
bool Swim::may_be_dead(Index index) const {
  return !table_[index].live() || std::ranges::any_of(probes_, [&](const Probe& probe) {
    return probe.closed && probe.member == index;
  });
}

void Swim::ask_helpers(Probe& probe) {
  probe.helpers_at = TimePoint::max();
  const Member& member = table_[probe.member];
  const auto closed = static_cast<std::size_t>(
      std::ranges::count_if(probes_, [](const Probe& other) { return other.closed; }));
  probe.helpers = table_.pick(options_.indirect_probes + closed, probe.member);
  std::erase_if(probe.helpers, [&](Index helper) { return may_be_dead(helper); });
  probe.helpers.resize(std::min(probe.helpers.size(), options_.indirect_probes));
  for (Index helper : probe.helpers)
    send(table_[helper].who->endpoint, PingRequest{probe.sequence, member.who});
  // Once more by ourselves: what was lost may have been one frame.
  ping(probe.member, probe.sequence);
}

void Swim::drive_probes(TimePoint now) {
  for (std::size_t i = 0; i < probes_.size();) {
    Probe& probe = probes_[i];
    if (!still_concerns(probe) || probe.ends <= now) {
      const Probe ended = probe;
      probes_.erase(probes_.begin() + static_cast<std::ptrdiff_t>(i));
      if (still_concerns(ended)) conclude(ended, now);
      continue;
    }
    if (probe.helpers_at <= now) ask_helpers(probe);
    if (probe.again <= now) {
      probe.again = now + kAskClosedAgain;
      ping(probe.member, probe.sequence);
    }
    ++i;
  }
}

void Swim::conclude(const Probe& probe, TimePoint now) {
  if (options_.lifeguard) {
    // Helpers that say that they have no answer either show that it is not us.
    if (probe.helpers.empty())
      health_.unanswered();
    else if (probe.nacks < probe.helpers.size())
      health_.helpers_silent(static_cast<int>(probe.helpers.size() - probe.nacks));
  }
  // Two helpers who may live have not said that they have no answer either: perhaps nobody is heard
  // here. (One alone may stand still.) Or the member is heard, and does not hear us.
  const auto silent =
      std::ranges::count_if(probe.helpers, [&](Index helper) { return !may_be_dead(helper); });
  const bool deaf = probe.nacks == 0 && silent >= 2;
  if (!probe.closed || deaf || spoke_lately(table_[probe.member], now)) {
    ++counters_.accusations;
    return suspect_by(probe.member, accuser_, now);
  }
  Rumor death = table_[probe.member].rumor(now);
  death.opinion = Opinion::kDead;
  ++counters_.burials;
  apply(probe.member, death,
        fmt::format("no answer within {} ms after a connection to it closed",
                    options_.closed_grace.count()),
        now);
}

void Swim::drive_relays(TimePoint now) {
  for (Relay& relay : relays_) {
    if (relay.nack_at > now) continue;
    relay.nack_at = TimePoint::max();
    send(relay.asker->endpoint, Nack{relay.asker_sequence});
  }
  std::erase_if(relays_, [&](const Relay& relay) { return relay.ends <= now; });
}

bool Swim::still_concerns(const Probe& probe) const {
  const Member& member = table_[probe.member];
  return member.who && member.live() && member.who->incarnation == probe.incarnation;
}

std::uint32_t Swim::next_sequence() {
  if (++sequence_ == 0) ++sequence_;
  return sequence_;
}

/// As long as this node's own health asks for.
Clock::duration Swim::scaled(Milliseconds time) const {
  return options_.lifeguard ? time * (1 + health_.score()) : time;
}

}  // namespace penstock
