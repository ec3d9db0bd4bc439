// The actor of one device: carries poller events, peers' questions and time into Outbound and
// Inbound, and their effects out.
#pragma once

#include <memory>
#include <vector>

#include "actors/caf.hpp"
#include "actors/device/inbound.hpp"
#include "actors/device/live_shadows.hpp"
#include "actors/device/outbound.hpp"
#include "actors/local_device.hpp"

namespace penstock {

struct DeviceActorSetup {
  std::shared_ptr<LocalDevice> device;
  Outbound::Options outbound;
  Inbound::Options inbound;
  std::shared_ptr<RegionTable> regions;
  std::shared_ptr<const LiveShadows> shadows;  // the node's
  caf::actor node;
  std::shared_ptr<LentThread> desk_thread;  // runs the node while it is awake; null: there is none
  std::vector<caf::actor> nics;             // by card
  bool sealed = false;                      // messages over the fabric are
  Incarnation incarnation = 0;              // ours
  bool warm_up = true;                      // new peers
};

caf::actor spawn_device(caf::actor_system& system, DeviceActorSetup setup);

/// Whether an executor may still touch our pages: answered with OpenFor.
struct AskOpenFor {
  Incarnation peer = 0;
  TransferId shadow = 0;
};
struct OpenFor {
  bool open = false;
};

}  // namespace penstock

PENSTOCK_MESSAGE(penstock::AskOpenFor)
PENSTOCK_MESSAGE(penstock::OpenFor)
