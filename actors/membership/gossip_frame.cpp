#include "actors/membership/gossip_frame.hpp"

#include "actors/wire/archive.hpp"

namespace penstock {
namespace {

constexpr const char* kMagic = "penstock-gossip";
constexpr std::size_t kMaxNodeBytes = 128;
constexpr std::size_t kMaxEndpointBytes = 256;

struct Envelope {
  std::string magic = kMagic;
  std::uint32_t version = kGossipVersion;
};
struct Sealed {
  Envelope envelope;
  GossipFrame frame;
};

}  // namespace

template <class A>
static void fields(A& archive, typename A::template Ref<MemberCard> m) {
  archive(m.device, m.nic, m.name, m.control);
}
template <class A>
static void fields(A& archive, typename A::template Ref<MemberRecord> m) {
  archive(m.node, m.incarnation, m.wire_version, m.service_version, m.provider, m.request_endpoint,
          m.gossip_endpoint, m.cards);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Announce> m) {
  archive(m.record, m.reply, m.endpoint);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Heartbeat> m) {
  archive(m.node, m.incarnation, m.endpoint, m.reply);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Leave> m) {
  archive(m.node, m.incarnation);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Envelope> m) {
  archive(m.magic, m.version);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Sealed> m) {
  archive(m.envelope.magic, m.envelope.version, m.frame);
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

Result<void> check(const MemberRecord& record) {
  return check_name(record.node, record.incarnation).and_then([&] {
    return check_endpoint(record.gossip_endpoint);
  });
}
Result<void> check(const Announce& announce) {
  return check(announce.record).and_then([&] { return check_endpoint(announce.endpoint); });
}
Result<void> check(const Heartbeat& heartbeat) {
  return check_name(heartbeat.node, heartbeat.incarnation).and_then([&] {
    return check_endpoint(heartbeat.endpoint);
  });
}
Result<void> check(const Leave& leave) { return check_name(leave.node, leave.incarnation); }

}  // namespace

std::string_view name_of(MemberState state) {
  switch (state) {
    case MemberState::kAlive:
      return "alive";
    case MemberState::kLeft:
      return "left";
    case MemberState::kDead:
      return "dead";
  }
  return "unknown";
}

std::vector<std::byte> encode(const MemberRecord& record) {
  ArchiveWriter archive;
  archive.value(record);
  return archive.take();
}

Result<MemberRecord> decode_member(std::span<const std::byte> bytes) {
  auto document = ArchiveDocument::parse(bytes, kMaxGossipBytes);
  if (!document)
    return fail(ErrorCode::kInvalidArgument, "member record: {}", document.error().message);
  auto record = document->read<MemberRecord>();
  if (!record)
    return fail(ErrorCode::kInvalidArgument, "member record: {}", record.error().message);
  if (auto checked = check(*record); !checked) return tl::unexpected(checked.error());
  return record;
}

std::vector<std::byte> encode(const GossipFrame& frame) {
  ArchiveWriter archive;
  archive.value(Sealed{{}, frame});
  return archive.take();
}

Result<GossipFrame> decode_gossip(std::span<const std::byte> bytes) {
  auto document = ArchiveDocument::parse(bytes, kMaxGossipBytes);
  if (!document)
    return fail(ErrorCode::kInvalidArgument, "gossip frame: {}", document.error().message);
  auto envelope = document->read<Envelope>();
  if (!envelope)
    return fail(ErrorCode::kInvalidArgument, "gossip frame: {}", envelope.error().message);
  if (envelope->magic != kMagic)
    return fail(ErrorCode::kInvalidArgument, "not a gossip frame of Penstock");
  const std::uint32_t version = envelope->version;
  if (version == 0 || version + 1 < kGossipVersion || version > kGossipVersion + 1)
    return fail(ErrorCode::kInvalidArgument, "gossip frame of version {}, this build talks {}",
                version, kGossipVersion);
  auto sealed = document->read<Sealed>();
  if (!sealed) return fail(ErrorCode::kInvalidArgument, "gossip frame: {}", sealed.error().message);
  auto checked = std::visit([](const auto& body) { return check(body); }, sealed->frame);
  if (!checked) return tl::unexpected(checked.error());
  return std::move(sealed->frame);
}

}  // namespace penstock
