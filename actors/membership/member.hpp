// What a node tells the others about itself, and how the others see it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/wire/message.hpp"

namespace penstock {

struct MemberCard {
  std::string device;
  std::uint16_t nic = 0;  // the card's place in its device
  std::string name;
  FabricAddress control;
};

struct MemberRecord {
  std::string node;
  Incarnation incarnation = 0;
  std::uint32_t wire_version = kWireVersion;
  std::string service_version;
  std::string provider;
  std::string request_endpoint;
  std::string gossip_endpoint;
  std::vector<MemberCard> cards;
};

enum class MemberState : unsigned char { kAlive, kLeft, kDead };
std::string_view name_of(MemberState state);

/// What membership tells the node actor. A member that restarts is kDead (or kLeft) under its old
/// incarnation first, then kAlive under the new one.
struct MemberChange {
  MemberRecord record;
  MemberState state = MemberState::kAlive;
  std::string reason;
  /// The incarnation has ended for certain (it left, or another took its place), and so has its
  /// memory.
  bool gone = false;
};

std::vector<std::byte> encode(const MemberRecord& record);
Result<MemberRecord> decode_member(std::span<const std::byte> bytes);

}  // namespace penstock
