// Members as the nodes reply and the events of subscribers show them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "actors/membership/member.hpp"

namespace penstock {

/// {"event":"member_joined","node":...}; `kind`: joined, draining, left or dead.
nlohmann::json member_event(std::string_view kind, const std::string& node, Incarnation incarnation,
                            std::string_view reason);

/// The devices of its cards, each once.
std::vector<std::string> devices_of(const MemberRecord& record);

struct KnownMember {
  const MemberRecord& record;
  MemberState state = MemberState::kAlive;
  bool connected = false;  // its peer is up
  std::uint32_t our_wire_version = kWireVersion;
};
/// One entry of the nodes reply. A member that is here is "connected" once its peer is up, else
/// "connecting", or "incompatible" when its wire version is too far from ours. `seen`: what
/// membership says at this moment.
nlohmann::json member_report(const KnownMember& member, const std::vector<MemberChange>& seen);

}  // namespace penstock
