// The actor of one device: carries poller events, peers' questions and time into Outbound and
// Inbound, and their effects out.
#pragma once

#include <memory>
#include <vector>

#include "actors/caf.hpp"
#include "actors/device/inbound.hpp"
#include "actors/device/outbound.hpp"
#include "actors/local_device.hpp"

namespace penstock {

struct DeviceActorSetup {
  std::shared_ptr<LocalDevice> device;
  Outbound::Options outbound;
  Inbound::Options inbound;
  std::shared_ptr<RegionTable> regions;
  caf::actor node;
  std::vector<caf::actor> nics;  // by card
  bool sealed = false;           // messages over the fabric are
  Incarnation incarnation = 0;   // ours
  bool warm_up = true;           // new peers
};

caf::actor spawn_device(caf::actor_system& system, DeviceActorSetup setup);

/// How many transfers of this peer may touch our pages: answered with OpenOf.
struct AskOpenOf {
  Incarnation peer = 0;
  TransferId transfer = 0;  // only this one; 0: all
};
struct OpenOf {
  std::size_t count = 0;
};

}  // namespace penstock

PENSTOCK_MESSAGE(penstock::AskOpenOf)
PENSTOCK_MESSAGE(penstock::OpenOf)
