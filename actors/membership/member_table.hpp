// Everybody who is known, by name: one incarnation each, the newest. Keeps what must be quick:
// random picks among the living, and digests by which two tables are compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/clock.hpp"
#include "actors/membership/gossip_frame.hpp"
#include "actors/membership/hash_index.hpp"
#include "actors/membership/suspicion.hpp"

namespace penstock {

struct Member {
  IdentityPtr who;  // null: a free place
  RecordPtr record;
  std::uint64_t revision = 0;
  Opinion opinion = Opinion::kAlive;
  bool draining = false;
  bool wanted = false;  // its record is being fetched
  bool tabled = false;  // found in somebody's table: who hears of it otherwise passes it on
  MemberState told = MemberState::kJoining;  // what the node actor knows; kJoining: nothing yet
  std::uint32_t load = 0;
  std::uint32_t place = 0;  // among the living, or among the dead
  std::unique_ptr<Suspicion> suspicion;
  std::unique_ptr<const std::string> reason;  // why it ended, or is draining
  TimePoint ended;
  std::optional<TimePoint> back;   // it was held for dead, and spoke again
  std::optional<TimePoint> heard;  // when a frame of its own came last

  bool live() const { return is_live(opinion); }
  Standing standing() const { return {who->incarnation, revision, opinion}; }
  /// What is passed on about it, its suspicion aside.
  Rumor rumor(TimePoint now) const;
};

class MemberTable {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = std::numeric_limits<Index>::max();

  explicit MemberTable(std::uint64_t seed) : random_(seed) {}
  MemberTable(const MemberTable&) = delete;
  MemberTable& operator=(const MemberTable&) = delete;

  Index find(std::string_view node) const;
  Index find(const Identity& who) const;  // any incarnation
  /// The newest incarnation that is known to have had this endpoint.
  Index at_endpoint(std::string_view endpoint) const;
  Member& operator[](Index index) { return members_[index]; }
  const Member& operator[](Index index) const { return members_[index]; }

  /// A stranger, or (with the index of its name) the next incarnation of a member.
  Index put(const Rumor& rumor, Index replaced = kNone);
  /// Same incarnation.
  void change(Index index, std::uint64_t revision, Opinion opinion, bool draining);
  void remove(Index index);

  std::size_t size() const { return by_name_.size(); }
  std::span<const Index> living() const { return living_; }
  /// Dead, but perhaps only unreachable.
  std::span<const Index> dead() const { return dead_; }
  /// All places, free ones among them.
  const std::deque<Member>& places() const { return members_; }

  /// Up to `count` distinct living members, in random order, without `but`.
  std::vector<Index> pick(std::size_t count, Index but = kNone);
  /// The living in random order, each once a round. kNone: nobody lives.
  Index next_in_round();

  /// Equal to another's where both know the same of the living, suspicions aside; the ended differ
  /// by when each node forgets them.
  const BucketDigests& digests() const { return digests_; }
  static std::size_t bucket_of(const Identity& who) { return who.name_hash % kBuckets; }
  /// This node's own part of the digests.
  void self_changed(const Rumor& before, const Rumor& after);

 private:
  void enter(Index index);
  void withdraw(Index index);
  void join_round(Index index);
  void erase_endpoint(Index index);
  static std::uint64_t digest_of(const Identity& who, std::uint64_t revision, bool draining);

  std::deque<Member> members_;
  std::vector<Index> free_;
  struct NameHash {
    const std::deque<Member>* members;
    std::uint64_t operator()(Index index) const { return (*members)[index].who->name_hash; }
  };
  struct EndpointHash {
    const std::deque<Member>* members;
    std::uint64_t operator()(Index index) const { return (*members)[index].who->endpoint_hash; }
  };
  HashIndex<NameHash> by_name_{NameHash{&members_}};
  HashIndex<EndpointHash> by_endpoint_{EndpointHash{&members_}};
  std::vector<Index> living_;
  std::vector<Index> dead_;
  std::vector<Index> round_;
  std::size_t next_ = 0;
  BucketDigests digests_ = BucketDigests(kBuckets);
  std::mt19937_64 random_;
};

}  // namespace penstock
