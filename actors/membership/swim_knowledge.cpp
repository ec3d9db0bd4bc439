// Swim: what is known, and what changes it. For each node the greatest of what was said holds.
#include <algorithm>
#include <cmath>

#include "actors/membership/swim.hpp"

namespace penstock {
namespace {

constexpr std::size_t kAskedAtOnce = 16;
/// Up to here the time for contradicting is constant: refutations need about as long.
constexpr double kSmallClusterLog10 = 3;

}  // namespace

void Swim::learn(Rumor rumor, const IdentityPtr& teller, bool tabled, TimePoint now) {
  if (rumor.who->node == self_.who->node) return about_self(rumor, now);
  const Index known = table_.find(*rumor.who);
  if (known == kNone || table_[known].who->incarnation < rumor.who->incarnation)
    return admit(std::move(rumor), known, teller, tabled, now);
  if (table_[known].who->incarnation == rumor.who->incarnation)
    update(known, std::move(rumor), teller, tabled, now);
}

/// A stranger, or a later incarnation of a member.
void Swim::admit(Rumor rumor, Index replaced, const IdentityPtr& teller, bool tabled,
                 TimePoint now) {
  if (replaced == kNone && table_.size() >= options_.most_members) return;
  if (!is_live(rumor.opinion) && std::chrono::seconds(rumor.ended_s) >= options_.forget_dead)
    return;
  std::string reason = rumor.opinion == Opinion::kLeft ? "left" : "was dead before it was seen";
  // One endpoint is one process at a time: whoever started later has it now.
  const Index holder = table_.at_endpoint(rumor.who->endpoint);
  const bool contested = holder != kNone && holder != replaced;
  if (contested && table_[holder].who->incarnation > rumor.who->incarnation &&
      rumor.standing() < Standing{rumor.who->incarnation, kFinalRevision, Opinion::kDead}) {
    rumor.opinion = Opinion::kDead;
    rumor.revision = kFinalRevision;
    reason = fmt::format("replaced by '{}' at its endpoint", table_[holder].who->node);
  }
  if (replaced != kNone) {
    Member& old = table_[replaced];
    drop_suspicion(replaced);
    if (old.told == MemberState::kAlive || old.told == MemberState::kDraining)
      emit(old, MemberState::kDead, fmt::format("restarted as {:x}", rumor.who->incarnation), true);
    seeds_.ended(old.who->node, now);
    if (old.who->endpoint != rumor.who->endpoint && network_.forget)
      network_.forget(old.who->endpoint);
  }
  const Index index = table_.put(rumor, replaced);
  Member& member = table_[index];
  if (!member.live()) {
    member.ended = now - std::chrono::seconds(rumor.ended_s);
    member.reason = std::make_unique<const std::string>(std::move(reason));
    if (!tabled) spread(rumor, now);
    return;
  }
  member.tabled = tabled;
  if (member.opinion == Opinion::kSuspect) {
    raise_suspicion(index, rumor.accuser, now);
    spread(rumor, now);
  }
  want_record(index, teller, now);
  if (contested && table_[holder].who->incarnation < member.who->incarnation &&
      table_[holder].standing() <
          Standing{table_[holder].who->incarnation, kFinalRevision, Opinion::kDead}) {
    Rumor end = table_[holder].rumor(now);
    end.opinion = Opinion::kDead;
    end.revision = kFinalRevision;
    end.ended_s = 0;
    apply(holder, end, fmt::format("replaced by '{}' at its endpoint", member.who->node), now);
  }
}

/// More about the incarnation that is known.
void Swim::update(Index index, Rumor rumor, const IdentityPtr& teller, bool tabled, TimePoint now) {
  Member& member = table_[index];
  // Somebody else's whole table may be old, after a partition above all, and so may be all that one
  // says who was away; and who has heard from it lately knows better. A death, of one who lives for
  // us, is only worth asking then.
  const bool doubted = (tabled || was_away(*teller, now) || spoke_lately(member, now)) &&
                       rumor.opinion == Opinion::kDead && rumor.revision != kFinalRevision &&
                       member.live() && rumor.revision >= member.revision;
  if (doubted) {
    rumor.opinion = Opinion::kSuspect;
    rumor.accuser = static_cast<std::uint32_t>(teller->name_hash ^ teller->incarnation) | 1;
    rumor.ended_s = 0;
  }
  if (rumor.standing() == member.standing()) {
    if (rumor.opinion == Opinion::kSuspect) confirm(index, rumor.accuser, now);
    return;
  }
  if (rumor.standing() < member.standing()) return;
  std::string reason;
  if (rumor.opinion == Opinion::kLeft)
    reason = "left";
  else if (rumor.opinion == Opinion::kDead)
    reason = fmt::format("dead, says '{}'", teller->node);
  const bool was_live = member.live();
  const bool was_suspect = member.opinion == Opinion::kSuspect;
  apply(index, rumor, std::move(reason), now);
  if (!was_suspect && member.opinion == Opinion::kSuspect &&
      (doubted ? probes_.size() < kAskedAtOnce : wants_second_opinion()))
    ask(index, false, now);
  if (!was_live && member.live() && !member.record) want_record(index, teller, now);
}

/// We hold it for dead, or did until lately, and it speaks: it was cut off, and everybody else was
/// silent for it. The suspicions that it raised then may end in deaths for as long as they last.
bool Swim::was_away(const Identity& teller, TimePoint now) const {
  const Index index = table_.find(teller);
  if (index == kNone || table_[index].who->incarnation != teller.incarnation) return false;
  const Member& member = table_[index];
  return member.opinion == Opinion::kDead ||
         (member.back && now - *member.back < options_.suspicion * options_.suspicion_longest);
}

/// Nobody is buried who was not silent for closed_grace to those who did so. A quarter of it is
/// left for frames that were under way.
bool Swim::spoke_lately(const Member& member, TimePoint now) const {
  return member.heard && now - *member.heard < options_.closed_grace * 3 / 4;
}

/// It was us who were away: the deaths that we saw meanwhile are no news for anybody, and whom we
/// suspect may contradict from now on.
void Swim::was_cut_off(TimePoint now) {
  queue_.drop_deaths();
  std::vector<Index> suspects;
  for (const auto& [deadline, index] : deadlines_) suspects.push_back(index);
  for (const Index index : suspects) apply(index, suspicion_of(table_[index], accuser_), "", now);
}

void Swim::apply(Index index, const Rumor& rumor, std::string reason, TimePoint now) {
  Member& member = table_[index];
  const bool was_live = member.live();
  drop_suspicion(index);
  table_.change(index, rumor.revision, rumor.opinion, rumor.draining);
  if (member.opinion == Opinion::kSuspect) raise_suspicion(index, rumor.accuser, now);
  if (!member.live()) {
    if (was_live) member.ended = now - std::chrono::seconds(rumor.ended_s);
    member.reason = std::make_unique<const std::string>(reason);
    seeds_.ended(member.who->node, now);
    next_knock_ = std::min(next_knock_, now + Milliseconds(50));
    if (network_.forget) network_.forget(member.who->endpoint);
  } else if (!was_live) {
    member.reason = nullptr;
    member.back = now;
  }
  if (!member.live() || member.record || member.opinion == Opinion::kSuspect) spread(rumor, now);
  tell(index, reason);
}

void Swim::about_self(const Rumor& rumor, TimePoint now) {
  if (left_ || rumor.who->incarnation < self_.who->incarnation) return;
  if (rumor.who->incarnation > self_.who->incarnation) {
    if (rumor.who->endpoint != self_.who->endpoint)
      ++counters_.duplicate_names;
    else
      outrun_by_ = std::max(outrun_by_, rumor.who->incarnation);
    return;
  }
  if (rumor.standing() <= self_.standing()) return;
  if (rumor.revision >= kFinalRevision - 1) {
    removed_ = left_ = true;
    return;
  }
  ++counters_.refutations;
  health_.was_suspected();
  if (rumor.opinion == Opinion::kDead) was_cut_off(now);
  Rumor changed = self_;
  changed.revision = rumor.revision + 1;
  change_self(changed, now);
}

void Swim::change_self(const Rumor& changed, TimePoint now) {
  table_.self_changed(self_, changed);
  self_ = changed;
  spread(self_, now);
}

// -- suspicion -----------------------------------------------------------------------------------

void Swim::suspect_by(Index index, std::uint32_t accuser, TimePoint now) {
  const Member& member = table_[index];
  if (!member.live()) return;
  if (member.opinion == Opinion::kSuspect) return confirm(index, accuser, now);
  apply(index, suspicion_of(member, accuser), "", now);
}

Rumor Swim::suspicion_of(const Member& member, std::uint32_t accuser) const {
  return {member.who, member.revision, Opinion::kSuspect, member.draining, accuser};
}

/// A few of all nodes look for themselves at once, so that a suspicion is soon confirmed, or ended.
bool Swim::wants_second_opinion() {
  const std::size_t nodes = table_.living().size();
  return options_.lifeguard && probes_.size() < kAskedAtOnce &&
         random_() % std::max<std::size_t>(nodes, 1) < 2 * options_.confirmations;
}

void Swim::raise_suspicion(Index index, std::uint32_t accuser, TimePoint now) {
  const std::size_t nodes = table_.living().size() + 1;
  const double larger = std::max(1.0, std::log10(static_cast<double>(nodes)) / kSmallClusterLog10);
  Suspicion::Terms terms;
  terms.shortest = std::chrono::duration_cast<Clock::duration>(options_.suspicion * larger);
  terms.longest = terms.shortest * options_.suspicion_longest;
  // Neither the suspect nor its first accuser can confirm.
  terms.confirmations =
      options_.lifeguard ? std::min(options_.confirmations, nodes - std::min<std::size_t>(nodes, 2))
                         : 0;
  Member& member = table_[index];
  member.suspicion = std::make_unique<Suspicion>(accuser, terms, now);
  deadlines_.emplace(member.suspicion->deadline(), index);
}

void Swim::confirm(Index index, std::uint32_t accuser, TimePoint now) {
  Member& member = table_[index];
  const TimePoint before = member.suspicion->deadline();
  if (!member.suspicion->confirm(accuser)) return;
  deadlines_.erase({before, index});
  deadlines_.emplace(member.suspicion->deadline(), index);
  spread(suspicion_of(member, accuser), now);
}

void Swim::drop_suspicion(Index index) {
  Member& member = table_[index];
  if (!member.suspicion) return;
  deadlines_.erase({member.suspicion->deadline(), index});
  member.suspicion = nullptr;
}

void Swim::bury(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Index index = deadlines_.begin()->second;
    const Member& member = table_[index];
    Rumor death = member.rumor(now);
    death.opinion = Opinion::kDead;
    ++counters_.burials;
    apply(index, death,
          fmt::format("no answer to {} node{}", member.suspicion->accusers(),
                      member.suspicion->accusers() == 1 ? "" : "s"),
          now);
  }
}

// -- what the node actor hears -------------------------------------------------------------------

void Swim::tell(Index index, const std::string& reason) {
  Member& member = table_[index];
  const bool told_live =
      member.told == MemberState::kAlive || member.told == MemberState::kDraining;
  if (!member.live()) {
    if (!told_live) return;
    member.told = member.opinion == Opinion::kLeft ? MemberState::kLeft : MemberState::kDead;
    return emit(member, member.told, reason, member.revision == kFinalRevision);
  }
  const MemberState state = member.draining ? MemberState::kDraining : MemberState::kAlive;
  if (!member.record || member.told == state || member.told == MemberState::kDraining) return;
  const char* why = member.told == MemberState::kDead ? "spoke again"
                    : member.draining                 ? "drains"
                                                      : "joined";
  member.told = state;
  emit(member, state, why, false);
}

void Swim::emit(const Member& member, MemberState state, std::string reason, bool gone) {
  MemberChange change;
  if (member.record) {
    change.record = member.record->record;
  } else {
    change.record.node = member.who->node;
    change.record.incarnation = member.who->incarnation;
    change.record.gossip_endpoint = member.who->endpoint;
  }
  change.state = state;
  change.reason = std::move(reason);
  change.gone = gone;
  change.load = member.load;
  changes_.push_back(std::move(change));
}

MemberState Swim::state_of(const Member& member) const {
  if (member.opinion == Opinion::kLeft) return MemberState::kLeft;
  if (member.opinion == Opinion::kDead) return MemberState::kDead;
  if (!member.record) return MemberState::kJoining;
  if (member.opinion == Opinion::kSuspect) return MemberState::kSuspect;
  return member.draining ? MemberState::kDraining : MemberState::kAlive;
}

std::vector<MemberChange> Swim::members() const {
  std::vector<MemberChange> all;
  for (const Member& member : table_.places()) {
    if (!member.who) continue;
    MemberChange& one = all.emplace_back();
    if (member.record) {
      one.record = member.record->record;
    } else {
      one.record.node = member.who->node;
      one.record.incarnation = member.who->incarnation;
      one.record.gossip_endpoint = member.who->endpoint;
    }
    one.state = state_of(member);
    if (member.reason) one.reason = *member.reason;
    one.gone = !member.live() && member.revision == kFinalRevision;
    one.load = member.load;
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.record.node < b.record.node; });
  return all;
}

}  // namespace penstock
