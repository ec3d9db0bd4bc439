#include "actors/membership/gossip_frame.hpp"

#include "actors/wire/archive.hpp"

namespace penstock {

template <>
inline constexpr Opinion kLastOf<Opinion> = Opinion::kLeft;

namespace {

constexpr const char* kMagic = "penstock-gossip";
constexpr std::size_t kMaxNodeBytes = 128;
constexpr std::size_t kMaxEndpointBytes = 256;

// -- as it travels: new fields and alternatives go to the end ------------------------------------

struct Envelope {
  std::string magic = kMagic;
  std::uint32_t version = kGossipVersion;
};
struct Label {
  std::string name;
  std::string value;
};
struct WireRumor {
  std::string node;
  Incarnation incarnation = 0;
  std::uint64_t revision = 0;
  Opinion opinion = Opinion::kAlive;
  bool draining = false;
  std::uint64_t digest = 0;
  std::string endpoint;
  std::uint32_t accuser = 0;
  std::uint32_t ended_s = 0;
};
struct WireGossip {};
struct WirePing {
  std::uint32_t sequence = 0;
  std::string node;
  Incarnation incarnation = 0;
};
struct WirePingRequest {
  std::uint32_t sequence = 0;
  std::string node;
  Incarnation incarnation = 0;
  std::string endpoint;
};
struct WireRecords {
  std::vector<InlineBytes> records;
};
using WireBody = std::variant<WireGossip, WirePing, Ack, WirePingRequest, Nack, Compare, Table,
                              Fetch, WireRecords>;
struct WireFrame {
  Envelope envelope;
  WireRumor sender;
  std::uint32_t load = 0;
  WireBody body;
  std::vector<WireRumor> rumors;
};

}  // namespace

template <class A>
static void fields(A& archive, typename A::template Ref<MemberCard> m) {
  archive(m.device, m.nic, m.name, m.control);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Label> m) {
  archive(m.name, m.value);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Envelope> m) {
  archive(m.magic, m.version);
}
template <class A>
static void fields(A& archive, typename A::template Ref<WireRumor> m) {
  archive(m.node, m.incarnation, m.revision, m.opinion, m.draining, m.digest, m.endpoint, m.accuser,
          m.ended_s);
}
template <class A>
static void fields(A& archive, typename A::template Ref<WireGossip>) {
  archive();
}
template <class A>
static void fields(A& archive, typename A::template Ref<WirePing> m) {
  archive(m.sequence, m.node, m.incarnation);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Ack> m) {
  archive(m.sequence);
}
template <class A>
static void fields(A& archive, typename A::template Ref<WirePingRequest> m) {
  archive(m.sequence, m.node, m.incarnation, m.endpoint);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Nack> m) {
  archive(m.sequence);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Compare> m) {
  archive(m.endpoint, m.buckets);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Table> m) {
  archive(m.endpoint, m.wanted);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Fetch::Name> m) {
  archive(m.node, m.incarnation);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Fetch> m) {
  archive(m.names);
}
template <class A>
static void fields(A& archive, typename A::template Ref<WireRecords> m) {
  archive(m.records);
}
template <class A>
static void fields(A& archive, typename A::template Ref<WireFrame> m) {
  archive(m.envelope.magic, m.envelope.version, m.sender, m.load, m.body, m.rumors);
}

namespace {

struct WireRecord {
  MemberRecord record;
  std::vector<Label> labels;
};

}  // namespace

template <class A>
static void fields(A& archive, typename A::template Ref<WireRecord> m) {
  archive(m.record.node, m.record.incarnation, m.record.wire_version, m.record.service_version,
          m.record.provider, m.record.request_endpoint, m.record.gossip_endpoint, m.record.cards,
          m.labels, added(m.record.fabric_key));
}

namespace {

Result<void> check_name(const std::string& node, Incarnation incarnation) {
  if (node.empty() || node.size() > kMaxNodeBytes)
    return fail(ErrorCode::kInvalidArgument, "a node name of {} bytes (1 to {})", node.size(),
                kMaxNodeBytes);
  if (incarnation == 0)
    return fail(ErrorCode::kInvalidArgument, "node '{}' has incarnation 0", node);
  return {};
}

Result<void> check_endpoint(const std::string& endpoint) {
  if (endpoint.size() > kMaxEndpointBytes)
    return fail(ErrorCode::kInvalidArgument, "an endpoint of {} bytes (at most {})",
                endpoint.size(), kMaxEndpointBytes);
  return {};
}

// -- writing -------------------------------------------------------------------------------------

WireRumor travelling(const Rumor& rumor) {
  return {rumor.who->node,   rumor.who->incarnation, rumor.revision, rumor.opinion, rumor.draining,
          rumor.who->digest, rumor.who->endpoint,    rumor.accuser,  rumor.ended_s};
}

struct ToWire {
  WireBody operator()(const Gossip&) const { return WireGossip{}; }
  WireBody operator()(const Ping& m) const {
    return WirePing{m.sequence, m.target->node, m.target->incarnation};
  }
  WireBody operator()(const PingRequest& m) const {
    return WirePingRequest{m.sequence, m.target->node, m.target->incarnation, m.target->endpoint};
  }
  WireBody operator()(const Records& m) const {
    WireRecords wire;
    for (const RecordPtr& record : m.records) wire.records.push_back({record->bytes});
    return wire;
  }
  template <class Same>
  WireBody operator()(const Same& same) const {
    return same;
  }
};

// -- reading -------------------------------------------------------------------------------------

Result<Rumor> arrived(WireRumor&& wire) {
  if (auto good = check_name(wire.node, wire.incarnation); !good)
    return tl::unexpected(good.error());
  if (auto good = check_endpoint(wire.endpoint); !good) return tl::unexpected(good.error());
  Rumor rumor;
  rumor.who =
      make_identity(std::move(wire.node), wire.incarnation, std::move(wire.endpoint), wire.digest);
  rumor.revision = wire.revision;
  rumor.opinion = wire.opinion;
  rumor.draining = wire.draining;
  rumor.accuser = wire.accuser;
  rumor.ended_s = wire.ended_s;
  return rumor;
}

struct FromWire {
  using Body = Result<GossipBody>;

  Body operator()(WireGossip&) const { return Gossip{}; }
  Body operator()(WirePing& m) const {
    return check_name(m.node, m.incarnation).map([&]() -> GossipBody {
      return Ping{m.sequence, make_identity(std::move(m.node), m.incarnation, "", 0)};
    });
  }
  Body operator()(WirePingRequest& m) const {
    return check_name(m.node, m.incarnation)
        .and_then([&] { return check_endpoint(m.endpoint); })
        .map([&]() -> GossipBody {
          return PingRequest{m.sequence, make_identity(std::move(m.node), m.incarnation,
                                                       std::move(m.endpoint), 0)};
        });
  }
  Body operator()(Compare& m) const {
    if (m.buckets.size() != kBuckets)
      return fail(ErrorCode::kInvalidArgument, "{} buckets, not {}", m.buckets.size(), kBuckets);
    return check_endpoint(m.endpoint).map([&]() -> GossipBody { return std::move(m); });
  }
  Body operator()(Table& m) const {
    return check_endpoint(m.endpoint).map([&]() -> GossipBody { return std::move(m); });
  }
  Body operator()(Fetch& m) const {
    for (const Fetch::Name& name : m.names)
      if (auto good = check_name(name.node, name.incarnation); !good)
        return tl::unexpected(good.error());
    return std::move(m);
  }
  Body operator()(WireRecords& m) const {
    Records records;
    for (InlineBytes& one : m.records) {
      auto stored = store_record(std::move(one.bytes));
      if (!stored) return tl::unexpected(stored.error());
      records.records.push_back(std::move(*stored));
    }
    return records;
  }
  template <class Same>
  Body operator()(Same& same) const {
    return GossipBody(same);
  }
};

Result<GossipFrame> arrived(WireFrame&& wire) {
  GossipFrame frame;
  frame.load = wire.load;
  auto sender = arrived(std::move(wire.sender));
  if (!sender) return tl::unexpected(sender.error());
  frame.sender = std::move(*sender);
  auto body = std::visit(FromWire(), wire.body);
  if (!body) return tl::unexpected(body.error());
  frame.body = std::move(*body);
  for (WireRumor& one : wire.rumors) {
    auto rumor = arrived(std::move(one));
    if (!rumor) return tl::unexpected(rumor.error());
    frame.rumors.push_back(std::move(*rumor));
  }
  return frame;
}

}  // namespace

std::string_view name_of(MemberState state) {
  switch (state) {
    case MemberState::kJoining:
      return "joining";
    case MemberState::kAlive:
      return "alive";
    case MemberState::kSuspect:
      return "suspect";
    case MemberState::kDraining:
      return "draining";
    case MemberState::kLeft:
      return "left";
    case MemberState::kDead:
      return "dead";
  }
  return "unknown";
}

std::vector<std::byte> encode(const MemberRecord& record) {
  WireRecord wire{record, {}};
  for (const auto& [name, value] : record.labels) wire.labels.push_back({name, value});
  ArchiveWriter archive;
  archive.value(wire);
  return archive.take();
}

Result<MemberRecord> decode_member(std::span<const std::byte> bytes) {
  auto wire = unarchive<WireRecord>(bytes, kMaxInlineBytes);
  if (!wire) return fail(ErrorCode::kInvalidArgument, "member record: {}", wire.error().message);
  MemberRecord record = std::move(wire->record);
  for (Label& label : wire->labels) record.labels[std::move(label.name)] = std::move(label.value);
  if (auto good = check_name(record.node, record.incarnation); !good)
    return tl::unexpected(good.error());
  if (auto good = check_endpoint(record.gossip_endpoint); !good)
    return tl::unexpected(good.error());
  return record;
}

std::vector<std::byte> encode(const GossipFrame& frame) {
  WireFrame wire;
  wire.sender = travelling(frame.sender);
  wire.load = frame.load;
  wire.body = std::visit(ToWire(), frame.body);
  for (const Rumor& rumor : frame.rumors) wire.rumors.push_back(travelling(rumor));
  ArchiveWriter archive;
  archive.value(wire);
  return archive.take();
}

Result<GossipFrame> decode_gossip(std::span<const std::byte> bytes) {
  auto envelope = unarchive_start<Envelope>(bytes);
  if (!envelope)
    return fail(ErrorCode::kInvalidArgument, "gossip frame: {}", envelope.error().message);
  if (envelope->magic != kMagic)
    return fail(ErrorCode::kInvalidArgument, "not a gossip frame of Penstock");
  const std::uint32_t version = envelope->version;
  if (version == 0 || version + 1 < kGossipVersion || version > kGossipVersion + 1)
    return fail(ErrorCode::kInvalidArgument, "gossip frame of version {}, this build talks {}",
                version, kGossipVersion);
  auto wire = unarchive<WireFrame>(bytes, kMaxGossipBytes);
  if (!wire) return fail(ErrorCode::kInvalidArgument, "gossip frame: {}", wire.error().message);
  return arrived(std::move(*wire));
}

}  // namespace penstock
