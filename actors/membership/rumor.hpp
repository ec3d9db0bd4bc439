// What nodes say about each other. Everything that is said of one node is ordered, and the greatest
// wins: a newer incarnation over an older, within one the higher revision, within one the graver
// opinion. So the order in which rumours come, and how often, makes no difference.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "actors/membership/member.hpp"

namespace penstock {

/// The same on every node, in every version.
std::uint64_t hash_of(std::string_view text);

/// One run of one node, as the others name it. Made once and shared by everything that mentions it.
struct Identity {
  std::string node;
  Incarnation incarnation = 0;
  std::string endpoint;      // where it takes gossip; "" where only the name was given
  std::uint64_t digest = 0;  // of its record
  std::uint64_t name_hash = 0;
  std::uint64_t endpoint_hash = 0;
};
using IdentityPtr = std::shared_ptr<const Identity>;
IdentityPtr make_identity(std::string node, Incarnation incarnation, std::string endpoint,
                          std::uint64_t digest);

/// A member's record together with the bytes that it travels as, so that whoever passes it on need
/// not understand all of it.
struct StoredRecord {
  MemberRecord record;
  std::vector<std::byte> bytes;
  std::uint64_t digest = 0;
};
using RecordPtr = std::shared_ptr<const StoredRecord>;
/// kInvalidArgument for a record that others would refuse.
Result<RecordPtr> store_record(std::vector<std::byte> bytes);

/// In order of gravity.
enum class Opinion : unsigned char { kAlive, kSuspect, kDead, kLeft };

/// Nobody contradicts what is said at this revision: the incarnation has ended.
inline constexpr std::uint64_t kFinalRevision = std::numeric_limits<std::uint64_t>::max();

/// What is said of a node, as a place in the order.
struct Standing {
  Incarnation incarnation = 0;
  std::uint64_t revision = 0;  // counted up by the node itself, to contradict a suspicion
  Opinion opinion = Opinion::kAlive;
  auto operator<=>(const Standing&) const = default;
};

struct Rumor {
  IdentityPtr who;
  std::uint64_t revision = 0;
  Opinion opinion = Opinion::kAlive;
  bool draining = false;      // said by the node itself at this revision
  std::uint32_t accuser = 0;  // with kSuspect: tells one accuser from another
  std::uint32_t ended_s = 0;  // with kDead and kLeft: how long ago

  Standing standing() const { return {who->incarnation, revision, opinion}; }
};

inline bool is_live(Opinion opinion) { return opinion <= Opinion::kSuspect; }

/// At most what a rumour takes in a frame.
inline std::size_t wire_bytes(const Rumor& rumor) {
  return 48 + rumor.who->node.size() + rumor.who->endpoint.size();
}

}  // namespace penstock
