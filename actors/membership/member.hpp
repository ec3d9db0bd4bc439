// What a node tells the others about itself, and how the others see it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
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

/// Never changes within one incarnation: it travels once, everything else names it by its digest.
struct MemberRecord {
  std::string node;
  Incarnation incarnation = 0;
  std::uint32_t wire_version = kWireVersion;
  std::string service_version;
  std::string provider;
  std::string request_endpoint;
  std::string gossip_endpoint;
  std::vector<MemberCard> cards;
  std::map<std::string, std::string> labels;  // node.labels of its configuration
  std::vector<std::byte> fabric_key{};        // of its seals (Seal); empty: it makes none
};

enum class MemberState : unsigned char {
  kJoining,  // somebody spoke of it; its record is being fetched
  kAlive,
  kSuspect,   // did not answer somebody; has time to contradict
  kDraining,  // takes no new work and will leave; still answers
  kLeft,      // on purpose, or removed by an operator: for good under this incarnation
  kDead,
};
std::string_view name_of(MemberState state);

/// What membership tells the node actor: kAlive, kDraining, kLeft and kDead, in a sequence that
/// makes sense per incarnation:
///   kAlive or kDraining first (with the whole record), kDraining after kAlive, then one of kLeft
///   and kDead; after kDead, unless `gone`, it may speak again: kAlive or kDraining.
/// A member that restarts is kDead (or kLeft) under its old incarnation first, then kAlive under
/// the new one. kJoining and kSuspect appear in lists of members only.
struct MemberChange {
  MemberRecord record;
  MemberState state = MemberState::kAlive;
  std::string reason;
  /// The incarnation has ended for certain (it left, or another took its place), and so has its
  /// memory.
  bool gone = false;
  /// How busy it last said it is: transfers in flight.
  std::uint32_t load = 0;
};

std::vector<std::byte> encode(const MemberRecord& record);
/// Never throws; names, endpoints and labels are checked for length.
Result<MemberRecord> decode_member(std::span<const std::byte> bytes);

}  // namespace penstock
