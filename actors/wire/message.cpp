#include "actors/wire/message.hpp"

#include <array>

#include "actors/wire/archive.hpp"

namespace penstock {

// What travels, each once for both directions. New fields go to the end.

template <class A>
static void fields(A& archive, typename A::template Ref<InboundCard> m) {
  archive(m.nic, m.generation, m.address);
}
template <class A>
static void fields(A& archive, typename A::template Ref<DeviceCards> m) {
  archive(m.device, m.cards);
}
template <class A>
static void fields(A& archive, typename A::template Ref<RegionKey> m) {
  archive(m.nic, m.base, m.key);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Hello::Way> m) {
  archive(m.from_device, m.from_nic, m.to_device, m.to_nic);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Hello> m) {
  archive(m.node, m.devices, m.way, added(m.challenge), added(m.answers));
}
template <class A>
static void fields(A& archive, typename A::template Ref<Open> m) {
  archive(m.transfer, m.region, m.epoch, m.direction, m.end, m.bytes, m.chunks, m.lease_ms,
          m.initiator_region, m.notify, m.initiator_device, m.pack_slots, m.data, added(m.staged),
          added(m.stream), added(m.part), added(m.shadow));
}
template <class A>
static void fields(A& archive, typename A::template Ref<Fin> m) {
  archive(m.transfer, m.device);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Fence::Card> m) {
  archive(m.nic, m.generation);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Fence> m) {
  archive(m.transfer, m.device, m.cards, m.final);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Revoke> m) {
  archive(m.region, m.epoch);
}
template <class A>
static void fields(A& archive, typename A::template Ref<HelloOk> m) {
  archive(m.devices, added(m.challenge), added(m.answers));
}
template <class A>
static void fields(A& archive, typename A::template Ref<StagingSlot> m) {
  archive(m.immediate, m.offset);
}
template <class A>
static void fields(A& archive, typename A::template Ref<LentStaging> m) {
  archive(m.slot_bytes, m.slots, m.keys);
}
template <class A>
static void fields(A& archive, typename A::template Ref<OpenOk> m) {
  archive(m.device, m.immediate, m.epoch, m.region_bytes, m.keys, m.staging, added(m.staged),
          added(m.on_gpu));
}
template <class A>
static void fields(A& archive, typename A::template Ref<FinOk>) {
  archive();
}
template <class A>
static void fields(A& archive, typename A::template Ref<Fenced> m) {
  archive(m.cards, m.keys, added(m.staging));
}
template <class A>
static void fields(A& archive, typename A::template Ref<AlreadyDone>) {
  archive();
}
template <class A>
static void fields(A& archive, typename A::template Ref<Revoked>) {
  archive();
}
template <class A>
static void fields(A& archive, typename A::template Ref<Refused> m) {
  archive(m.error);
}
template <class A>
static void fields(A& archive, typename A::template Ref<DrainNode> m) {
  archive(m.deadline_ms);
}
template <class A>
static void fields(A& archive, typename A::template Ref<DrainBegun>) {
  archive();
}
template <class A>
static void fields(A& archive, typename A::template Ref<Verify> m) {
  archive(m.region, m.epoch, m.pages);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Verified> m) {
  archive(m.differing);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Delegate> m) {
  archive(m.transfer, m.client, m.admin, m.deadline_ms, m.total, m.offset, m.part);
}
template <class A>
static void fields(A& archive, typename A::template Ref<StopDelegated> m) {
  archive(m.transfer);
}
template <class A>
static void fields(A& archive, typename A::template Ref<LookAtDelegated> m) {
  archive(m.transfers);
}
template <class A>
static void fields(A& archive, typename A::template Ref<DelegatedEnded::Card> m) {
  archive(m.name, m.bytes, m.writes);
}
template <class A>
static void fields(A& archive, typename A::template Ref<DelegatedEnded> m) {
  archive(m.transfer, m.executed_as, m.state, m.unreachable, m.remote_epoch, m.bytes, m.writes,
          m.path, m.cards, m.error, m.landed, m.landed_truncated);
}
template <class A>
static void fields(A& archive, typename A::template Ref<Delegated> m) {
  archive(m.executed_as);
}
template <class A>
static void fields(A& archive, typename A::template Ref<StopSeen> m) {
  archive(m.running);
}
template <class A>
static void fields(A& archive, typename A::template Ref<DelegatedSeen::Progress> m) {
  archive(m.state, m.bytes, m.total_bytes);
}
template <class A>
static void fields(A& archive, typename A::template Ref<DelegatedSeen> m) {
  archive(m.transfers);
}
template <class A>
static void fields(A& archive, typename A::template Ref<EndSeen>) {
  archive();
}
template <class A>
static void fields(A& archive, typename A::template Ref<Message> m) {
  archive(m.version, m.source, m.destination, m.sequence, m.body, added(m.sent_ms),
          added(m.sent_after_ms));
}

namespace {

// Read before the rest: a message of a version too far away is refused as such.
struct Envelope {
  std::uint32_t version = 0;
};

}  // namespace

template <class A>
static void fields(A& archive, typename A::template Ref<Envelope> m) {
  archive(m.version);
}

std::string_view name_of(const Question& question) {
  static constexpr std::array<std::string_view, std::variant_size_v<Question>> kNames = {
      "Hello",  "Open",     "Fin",           "Fence",           "Revoke",        "DrainNode",
      "Verify", "Delegate", "StopDelegated", "LookAtDelegated", "DelegatedEnded"};
  return kNames.at(question.index());
}

std::string_view name_of(const Answer& answer) {
  static constexpr std::array<std::string_view, std::variant_size_v<Answer>> kNames = {
      "HelloOk",    "OpenOk",   "FinOk",     "Fenced",   "AlreadyDone",   "Revoked", "Refused",
      "DrainBegun", "Verified", "Delegated", "StopSeen", "DelegatedSeen", "EndSeen"};
  return kNames.at(answer.index());
}

Result<std::vector<std::byte>> encode(const Message& message) {
  const std::string_view name =
      std::visit([](const auto& body) { return name_of(body); }, message.body);
  ArchiveWriter archive;
  archive.value(message);
  if (!archive.problem().empty())
    return fail(ErrorCode::kInvalidArgument, "{} message: {} does not travel; shorten it", name,
                archive.problem());
  std::vector<std::byte> bytes = archive.take();
  constexpr std::size_t kMost = kMaxMessageBytes - kSealBytes;
  if (bytes.size() > kMost)
    return fail(ErrorCode::kInvalidArgument,
                "{} message of {} bytes, at most {}: too many cards, or names too long", name,
                bytes.size(), kMost);
  return bytes;
}

Result<Message> decode_message(std::span<const std::byte> bytes) {
  auto envelope = unarchive_start<Envelope>(bytes);
  if (!envelope)
    return fail(ErrorCode::kInvalidArgument, "fabric message: {}", envelope.error().message);
  const std::uint32_t version = envelope->version;
  if (!compatible(version, kWireVersion))
    return fail(ErrorCode::kInvalidArgument,
                "fabric message of version {}, this build talks {}; nodes at most one apart work "
                "together, upgrade the older one",
                version, kWireVersion);
  auto message = unarchive<Message>(bytes, kMaxMessageBytes);
  if (!message)
    return fail(ErrorCode::kInvalidArgument, "fabric message: {}", message.error().message);
  return message;
}

Result<Message> decode_sealed_message(std::span<const std::byte> bytes) {
  if (bytes.size() < kSealBytes)
    return fail(ErrorCode::kInvalidArgument, "fabric message: no seal in {} bytes", bytes.size());
  const auto sealed = bytes.first(bytes.size() - kSealBytes);
  const auto seal = bytes.last(kSealBytes);
  auto message = decode_message(sealed);
  if (!message) return message;
  message->sealed.assign(sealed.begin(), sealed.end());
  message->seal.assign(seal.begin(), seal.end());
  return message;
}

}  // namespace penstock
