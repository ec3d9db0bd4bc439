// The frames that gossip sockets exchange, in msgpack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "actors/membership/member.hpp"

namespace penstock {

inline constexpr std::uint32_t kGossipVersion = 1;
inline constexpr std::size_t kMaxGossipBytes = 64 * 1024;

/// A node tells everything about itself.
struct Announce {
  MemberRecord record;
  bool reply = false;    // announce yourself to me
  std::string endpoint;  // the receiver's, as the sender knows it; a reply repeats it
};
/// A node is there.
struct Heartbeat {
  std::string node;
  Incarnation incarnation = 0;
  std::string endpoint;  // the sender's, for one who does not know it yet
  bool reply = false;    // send me a heartbeat
};
/// A node goes, on purpose and for good under this incarnation.
struct Leave {
  std::string node;
  Incarnation incarnation = 0;
};

using GossipFrame = std::variant<Announce, Heartbeat, Leave>;

std::vector<std::byte> encode(const GossipFrame& frame);
/// Never throws; names and endpoints are checked for length, incarnations for being set.
Result<GossipFrame> decode_gossip(std::span<const std::byte> bytes);

}  // namespace penstock
