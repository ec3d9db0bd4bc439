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
#include "actors/monitor/monitor.hpp"
#include "actors/node/admission.hpp"
#include "actors/node/event_log.hpp"
#include "actors/node/front_desk.hpp"
#include "actors/node/ledger.hpp"
#include "actors/node/region_jobs.hpp"
#include "actors/node/third_party.hpp"
#include "actors/peer/peer.hpp"
#include "actors/security/audit.hpp"

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
  std::size_t client_transfers = 0;  // of them one client's; 0: no limit of its own
  std::size_t events_kept = 10000;
  std::size_t traces_kept = 1000;
  std::function<Gateway::Counters()> requests;  // the gateway's
  std::shared_ptr<FrontDesk> desk = std::make_shared<FrontDesk>();
  std::shared_ptr<LiveShadows> shadows = std::make_shared<LiveShadows>();
  /// Clients get rings at this socket; null: none do.
  std::shared_ptr<DescriptorSocket> ring_socket;
  std::function<void(const ClientId&)> end_ring;  // of a client that died
  std::function<std::string()> watched_at;        // the page's address; "": there is none
  ThirdPartyOptions third_party;
  Ledger::Options ledger;
  RegionLimits limits;
  std::shared_ptr<DescriptorSocket> descriptors;  // null: there is none
  Peer::Options peer;
  std::shared_ptr<Audit> audit;  // of what peers send
  EventLog::Send send;           // the gateway's send_packed()
  // -- membership ---------------------------------------------------------------------------------
  /// The data plane saw a link to this node fail: membership should look at once.
  std::function<void(const std::string& node)> suspect;
  /// The others shall know that this node drains.
  std::function<void()> announce_drain;
  /// A member is struck off; kBusy when it answers, unless with `force`.
  std::function<Result<void>(const std::string& node, bool force)> remove;
  /// How many transfers are in flight here, for the others to know.
  std::function<void(std::uint32_t)> set_load;
  /// As membership sees them now, suspects and loads too.
  std::function<std::vector<MemberChange>()> members;
  /// The process shall drain and end; a deadline of 0 is the node's own. Empty: it cannot.
  std::function<void(Milliseconds deadline)> drain_asked;
  /// A member that left or died is listed for so long.
  Milliseconds departed_kept{600'000};
};

/// The actors that the node actor talks to; they exist only after it, so they come by message.
struct NodeChildren {
  std::vector<caf::actor> devices;
  std::vector<std::vector<caf::actor>> nics;  // by device
};

caf::actor spawn_node(caf::actor_system& system, NodeActorSetup setup);

}  // namespace penstock

PENSTOCK_MESSAGE(penstock::NodeChildren)
