#include "actors/membership/member_table.hpp"

#include <algorithm>
#include <utility>

namespace penstock {

Rumor Member::rumor(TimePoint now) const {
  Rumor rumor{who, revision, opinion == Opinion::kSuspect ? Opinion::kAlive : opinion, draining};
  if (!live())
    rumor.ended_s = static_cast<std::uint32_t>(
        std::chrono::duration_cast<std::chrono::seconds>(now - ended).count());
  return rumor;
}

MemberTable::Index MemberTable::find(std::string_view node) const {
  return by_name_.find(hash_of(node),
                       [&](Index index) { return members_[index].who->node == node; });
}

MemberTable::Index MemberTable::find(const Identity& who) const {
  return by_name_.find(who.name_hash,
                       [&](Index index) { return members_[index].who->node == who.node; });
}

MemberTable::Index MemberTable::at_endpoint(std::string_view endpoint) const {
  return by_endpoint_.find(hash_of(endpoint),
                           [&](Index index) { return members_[index].who->endpoint == endpoint; });
}

MemberTable::Index MemberTable::put(const Rumor& rumor, Index replaced) {
  Index index = replaced;
  if (index != kNone) {
    withdraw(index);
    erase_endpoint(index);
    by_name_.erase(index);
    members_[index] = Member();
  } else if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else {
    index = static_cast<Index>(members_.size());
    members_.emplace_back();
  }
  Member& member = members_[index];
  member.who = rumor.who;
  member.revision = rumor.revision;
  member.opinion = rumor.opinion;
  member.draining = rumor.draining;
  by_name_.insert(index);
  const Index other = at_endpoint(member.who->endpoint);
  if (other == kNone || members_[other].who->incarnation < member.who->incarnation) {
    if (other != kNone) erase_endpoint(other);
    if (!member.who->endpoint.empty()) by_endpoint_.insert(index);
  }
  enter(index);
  if (member.live()) join_round(index);
  return index;
}

void MemberTable::change(Index index, std::uint64_t revision, Opinion opinion, bool draining) {
  withdraw(index);
  Member& member = members_[index];
  const bool lived = member.live();
  member.revision = revision;
  member.opinion = opinion;
  member.draining = draining;
  enter(index);
  if (member.live() && !lived) join_round(index);
}

void MemberTable::remove(Index index) {
  withdraw(index);
  erase_endpoint(index);
  by_name_.erase(index);
  members_[index] = Member();
  free_.push_back(index);
}

void MemberTable::erase_endpoint(Index index) {
  const std::string& endpoint = members_[index].who->endpoint;
  if (!endpoint.empty() && at_endpoint(endpoint) == index) by_endpoint_.erase(index);
}

// -- the living and the dead ---------------------------------------------------------------------

void MemberTable::enter(Index index) {
  Member& member = members_[index];
  if (member.live()) {
    digests_[bucket_of(*member.who)] ^= digest_of(*member.who, member.revision, member.draining);
    member.place = static_cast<std::uint32_t>(living_.size());
    living_.push_back(index);
  } else if (member.revision != kFinalRevision) {
    member.place = static_cast<std::uint32_t>(dead_.size());
    dead_.push_back(index);
  }
}

void MemberTable::withdraw(Index index) {
  Member& member = members_[index];
  if (!member.live() && member.revision == kFinalRevision) return;
  if (member.live())
    digests_[bucket_of(*member.who)] ^= digest_of(*member.who, member.revision, member.draining);
  auto& list = member.live() ? living_ : dead_;
  const Index last = list.back();
  list[member.place] = last;
  members_[last].place = member.place;
  list.pop_back();
}

std::vector<MemberTable::Index> MemberTable::pick(std::size_t count, Index but) {
  std::vector<Index> picked;
  const std::size_t available =
      living_.size() - (but != kNone && members_[but].live() ? std::size_t{1} : std::size_t{0});
  count = std::min(count, available);
  picked.reserve(count);
  if (count * 2 >= available) {  // nearly all: draw without replacement
    for (Index index : living_)
      if (index != but) picked.push_back(index);
    for (std::size_t i = 0; i < count; ++i)
      std::swap(picked[i], picked[i + random_() % (picked.size() - i)]);
    picked.resize(count);
    return picked;
  }
  while (picked.size() < count) {
    const Index index = living_[random_() % living_.size()];
    if (index != but && std::find(picked.begin(), picked.end(), index) == picked.end())
      picked.push_back(index);
  }
  return picked;
}

// Anywhere in what is left of the round: a newcomer is asked as often as the others from the start.
void MemberTable::join_round(Index index) {
  round_.push_back(index);
  std::swap(round_[next_ + random_() % (round_.size() - next_)], round_.back());
}

MemberTable::Index MemberTable::next_in_round() {
  while (true) {
    if (next_ >= round_.size()) {
      if (living_.empty()) return kNone;
      round_ = living_;
      std::shuffle(round_.begin(), round_.end(), random_);
      next_ = 0;
    }
    const Index index = round_[next_++];
    if (members_[index].who && members_[index].live()) return index;
  }
}

// -- digests -------------------------------------------------------------------------------------

std::uint64_t MemberTable::digest_of(const Identity& who, std::uint64_t revision, bool draining) {
  std::uint64_t digest = who.name_hash;
  for (std::uint64_t part : {who.incarnation, revision, std::uint64_t{draining}}) {
    digest ^= part + 0x9e3779b97f4a7c15u + (digest << 6) + (digest >> 2);
    digest *= 0xff51afd7ed558ccdu;
    digest ^= digest >> 33;
  }
  return digest;
}

void MemberTable::self_changed(const Rumor& before, const Rumor& after) {
  if (before.who && is_live(before.opinion))
    digests_[bucket_of(*before.who)] ^= digest_of(*before.who, before.revision, before.draining);
  if (is_live(after.opinion))
    digests_[bucket_of(*after.who)] ^= digest_of(*after.who, after.revision, after.draining);
}

}  // namespace penstock
