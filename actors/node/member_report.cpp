#include "actors/node/member_report.hpp"

#include <algorithm>
#include <set>

namespace penstock {
namespace {

std::string_view state_of(const KnownMember& member, const MemberChange* seen) {
  if (seen && seen->state == MemberState::kSuspect && member.state == MemberState::kAlive)
    return name_of(MemberState::kSuspect);
  if (seen && seen->state == MemberState::kLeft && member.state == MemberState::kDead)
    return name_of(MemberState::kLeft);  // removed since
  if (member.state != MemberState::kAlive) return name_of(member.state);
  if (member.connected) return "connected";
  const bool fits = compatible(member.record.wire_version, member.our_wire_version);
  return fits ? "connecting" : "incompatible";
}

}  // namespace

nlohmann::json member_event(std::string_view kind, const std::string& node, Incarnation incarnation,
                            std::string_view reason) {
  return {{"event", "member_" + std::string(kind)},
          {"node", node},
          {"incarnation", incarnation},
          {"reason", reason}};
}

nlohmann::json member_report(const KnownMember& member, const std::vector<MemberChange>& seen) {
  const MemberRecord& record = member.record;
  const auto now = std::ranges::find_if(seen, [&](const MemberChange& change) {
    return change.record.node == record.node && change.record.incarnation == record.incarnation;
  });
  const MemberChange* current = now == seen.end() ? nullptr : &*now;
  nlohmann::json labels = nlohmann::json::object();
  for (const auto& [key, value] : record.labels) labels[key] = value;
  return {{"name", record.node},
          {"incarnation", record.incarnation},
          {"state", state_of(member, current)},
          {"connected", member.connected},
          {"load", current ? current->load : 0},
          {"labels", std::move(labels)},
          {"wire_version", record.wire_version},
          {"provider", record.provider},
          {"service_version", record.service_version},
          {"request_endpoint", record.request_endpoint},
          {"gossip_endpoint", record.gossip_endpoint},
          {"cards", record.cards.size()}};
}

std::vector<std::string> devices_of(const MemberRecord& record) {
  std::set<std::string> devices;
  for (const MemberCard& card : record.cards) devices.insert(card.device);
  return {devices.begin(), devices.end()};
}

}  // namespace penstock
