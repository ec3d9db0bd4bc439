// Swim: what piggy-backing cannot do. Tables are compared with a random member's, seeds are knocked
// at, the dead are tried, records are fetched.
#include <algorithm>
#include <map>

#include "actors/membership/swim.hpp"

namespace penstock {
namespace {

/// Rumours of one frame of a table: below kMaxGossipBytes whatever else is in it.
constexpr std::size_t kTableBytes = 24 * 1024;
/// A seed in place of a random member, once in so many times.
constexpr std::uint64_t kSeedShare = 4;
/// The whole cluster tries each of the dead about so often in five periods.
constexpr double kDeadTries = 5;
constexpr std::size_t kRecordsAsked = 16;
constexpr std::size_t kFetchesAtOnce = 4;
constexpr Milliseconds kFetchPause{20};

}  // namespace

void Swim::push_pull(TimePoint now) {
  const Clock::duration whole = options_.push_pull;
  next_push_pull_ = now + whole - whole / 1000 * static_cast<int>(random_() % 101);
  if (random_() % kSeedShare == 0)
    if (const std::string* seed = seeds_.any()) return knock(*seed, now);
  for (Index index : table_.pick(1))
    send_bulk(table_[index].who->endpoint, Compare{"", table_.digests()});
}

// A cluster that fell apart holds the other part for dead.
void Swim::reconnect(TimePoint now) {
  next_reconnect_ = now + 5 * options_.period;
  const auto dead = table_.dead();
  if (dead.empty()) return;
  const double nodes = static_cast<double>(table_.living().size()) + 1;
  const double wanted = kDeadTries * static_cast<double>(dead.size()) / nodes;
  if (wanted < 1 && static_cast<double>(random_() % 1000) >= wanted * 1000) return;
  send_bulk(table_[dead[random_() % dead.size()]].who->endpoint, Compare{"", table_.digests()});
}

void Swim::knock(const std::string& seed, TimePoint now) {
  if (network_.resolve)
    network_.resolve(seed);
  else
    resolved(seed, {seed}, now);
}

void Swim::resolved(const std::string& seed, std::vector<std::string> endpoints, TimePoint) {
  if (left_) return;
  for (const std::string& endpoint : seeds_.addresses(seed, std::move(endpoints)))
    send_bulk(endpoint, Compare{endpoint, table_.digests()});
}

/// `first` is for the receiver itself; the rest of the living without a record is left out, as who
/// hears of them here could not fetch it here.
void Swim::send_tables(const std::string& to, const std::string& endpoint, std::uint64_t buckets,
                       std::uint64_t wanted, std::optional<Rumor> first, TimePoint now) {
  Table table{endpoint, wanted};
  std::vector<Rumor> rumors;
  std::size_t bytes = 0;
  if (first) rumors.push_back(std::move(*first));
  for (const Member& member : table_.places()) {
    if (buckets == 0) break;
    if (!member.who || (member.live() && !member.record)) continue;
    if ((buckets >> MemberTable::bucket_of(*member.who) & 1) == 0) continue;
    Rumor rumor = member.rumor(now);
    if (bytes + wire_bytes(rumor) > kTableBytes) {
      send_bulk(to, std::exchange(table, Table{}), std::exchange(rumors, {}));
      bytes = 0;
    }
    bytes += wire_bytes(rumor);
    rumors.push_back(std::move(rumor));
  }
  send_bulk(to, std::move(table), std::move(rumors));
}

// -- records -------------------------------------------------------------------------------------

void Swim::want_record(Index index, const IdentityPtr& teller, TimePoint now) {
  Member& member = table_[index];
  if (std::exchange(member.wanted, true)) return;
  wanted_.push_back({index, member.who->incarnation, teller, 0, now});
  next_fetch_ = std::min(next_fetch_, now);
}

void Swim::fetch(TimePoint now) {
  std::erase_if(wanted_, [this](const Wanted& wanted) {
    Member& member = table_[wanted.member];
    if (!member.who || member.who->incarnation != wanted.incarnation) return true;
    member.wanted = member.live() && !member.record;
    return !member.wanted;
  });
  next_fetch_ = TimePoint::max();
  std::map<std::string, Fetch> fetches;
  for (Wanted& wanted : wanted_) {
    if (wanted.next <= now) {
      const std::string* from = holder(wanted);
      const bool room =
          from != nullptr && (fetches.contains(*from) ? fetches[*from].names.size() < kRecordsAsked
                                                      : fetches.size() < kFetchesAtOnce);
      if (from == nullptr || room) {
        ++wanted.tries;
        wanted.next = now + options_.probe_timeout;
      } else {
        wanted.next = now + kFetchPause;
      }
      if (room)
        fetches[*from].names.push_back({table_[wanted.member].who->node, wanted.incarnation});
    }
    next_fetch_ = std::min(next_fetch_, wanted.next);
  }
  for (auto& [endpoint, names] : fetches) send_bulk(endpoint, std::move(names));
}

/// Whoever told of it has it; else the member itself, else anybody may.
const std::string* Swim::holder(Wanted& wanted) {
  const IdentityPtr& member = table_[wanted.member].who;
  if (wanted.tries % 3 == 0 && !wanted.teller->endpoint.empty()) return &wanted.teller->endpoint;
  if (wanted.tries % 3 == 2)
    for (Index index : table_.pick(1, wanted.member)) return &table_[index].who->endpoint;
  return &member->endpoint;
}

}  // namespace penstock
