// The frames that gossip sockets exchange, in msgpack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "actors/membership/rumor.hpp"

namespace penstock {

inline constexpr std::uint32_t kGossipVersion = 1;
inline constexpr std::size_t kMaxGossipBytes = 64 * 1024;
/// A member table is compared in so many parts.
inline constexpr std::size_t kBuckets = 64;
using BucketDigests = std::vector<std::uint64_t>;  // kBuckets of them

/// Nothing but the rumours that every frame may carry.
struct Gossip {};
/// Are you there? Meant for one incarnation: another that finds it answers with a Gossip.
struct Ping {
  std::uint32_t sequence = 0;  // the asker's; 0: the answer is not waited for
  IdentityPtr target;
};
struct Ack {
  std::uint32_t sequence = 0;
};
/// Ping that one for me.
struct PingRequest {
  std::uint32_t sequence = 0;
  IdentityPtr target;
};
/// I have asked, and have no answer yet.
struct Nack {
  std::uint32_t sequence = 0;
};
/// Digests of whom I know: say where we differ. Also the first that is sent to a seed.
struct Compare {
  std::string endpoint;  // the receiver's, as the sender knows it; the answer repeats it
  BucketDigests buckets;
};
/// The rumours are all that I know of some buckets; send me yours of `wanted`.
struct Table {
  std::string endpoint;
  std::uint64_t wanted = 0;  // a bit per bucket
};
/// Send me these records.
struct Fetch {
  struct Name {
    std::string node;
    Incarnation incarnation = 0;
  };
  std::vector<Name> names;
};
struct Records {
  std::vector<RecordPtr> records;
};

using GossipBody =
    std::variant<Gossip, Ping, Ack, PingRequest, Nack, Compare, Table, Fetch, Records>;

struct GossipFrame {
  Rumor sender;            // what the sender says of itself
  std::uint32_t load = 0;  // transfers in flight there
  GossipBody body;
  std::vector<Rumor> rumors;
};

std::vector<std::byte> encode(const GossipFrame& frame);
/// Never throws; names and endpoints are checked for length, incarnations for being set.
Result<GossipFrame> decode_gossip(std::span<const std::byte> bytes);

}  // namespace penstock
