// The actor of the node: answers requests, routes transfers to the device that owns the region,
// keeps the ledger and the events, starts and ends peers as members come and go, drains.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/caf.hpp"
#include "actors/device/region_table.hpp"
#include "actors/gateway/gateway.hpp"
#include "actors/local_device.hpp"
#include "actors/node/admission.hpp"
#include "actors/node/event_log.hpp"
#include "actors/node/ledger.hpp"
#include "actors/node/region_jobs.hpp"
#include "actors/peer/peer.hpp"

namespace penstock {

struct NodeActorSetup {
  std::string node;
  Incarnation incarnation = 0;
  std::string service_version;
  std::string segments;  // how the names of the shared memory that we make start
  std::string provider;
  std::vector<std::shared_ptr<LocalDevice>> devices;
  std::shared_ptr<RegionTable> regions;
  PlanLimits plan;
  Milliseconds default_deadline{60000};
  Milliseconds release_deadline{10000};
  std::size_t transfers_in_flight = 65536;
  std::size_t events_kept = 10000;
  Ledger::Options ledger;
  RegionLimits limits;
  Peer::Options peer;
  EventLog::Send send;  // the gateway's
  /// The data plane saw a link to this node fail: membership should look at once.
  std::function<void(const std::string& node)> suspect;
};

/// The actors that the node actor talks to; they exist only after it, so they come by message.
struct NodeChildren {
  std::vector<caf::actor> devices;
  std::vector<std::vector<caf::actor>> nics;  // by device
};

caf::actor spawn_node(caf::actor_system& system, NodeActorSetup setup);

}  // namespace penstock

PENSTOCK_MESSAGE(penstock::NodeChildren)
