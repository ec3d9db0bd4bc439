// The actor of one connected node: carries messages and time into Peer, and its effects out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/caf.hpp"
#include "actors/device/region_table.hpp"
#include "actors/local_device.hpp"
#include "actors/peer/peer.hpp"
#include "actors/security/audit.hpp"

namespace penstock {

struct PeerActorSetup {
  MemberRecord record;
  Peer::Options options;
  std::vector<std::shared_ptr<LocalDevice>> devices;
  std::vector<caf::actor> device_actors;      // in the order of `devices`
  std::vector<std::vector<caf::actor>> nics;  // their cards
  caf::actor node;
  std::shared_ptr<RegionTable> regions;  // to find the device that an OPEN concerns
  std::shared_ptr<Audit> audit;          // with Peer::Options::secrets
};

caf::actor spawn_peer(caf::actor_system& system, PeerActorSetup setup);

}  // namespace penstock
