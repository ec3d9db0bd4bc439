// Which cards serve which device. A device is a GPU or, on a machine without one, the host memory
// of a NUMA node. Pure over a Topology.
//
// A GPU climbs its PCI bridges to the first that also stands above a card. That bridge's cards, by
// bus, are divided among the GPUs that end there; with fewer cards than GPUs neighbours share one.
// A GPU without such a bridge takes its part of the cards of its NUMA node, else of all cards.
// Parts are cut for every GPU of the machine, whether this process may use it or not: what one
// service gets does not depend on which GPUs it sees, and two services never take each other's
// cards.
//
// Host memory takes the cards of its NUMA node, and those whose node nobody knows, which are as
// near to it as to any; without either, all cards.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "transport/error.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/topology/topology.hpp"

namespace penstock {

enum class DeviceKind : unsigned char { kGpu, kHost };

struct PairedCard {
  std::size_t offer = 0;  // index into the offers that were given
  std::string why;        // "same PCIe switch 0000:45:00.0", "same NUMA node 1", "override" ...
};

struct DevicePlan {
  std::string name;  // "gpu0" ..: its place among the machine's GPUs by bus; "host0" ..: NUMA node
  DeviceKind kind = DeviceKind::kHost;
  int index = 0;                  // the number in the name; never CUDA's ordinal: map by bus
  std::string bus;                // of a GPU
  int numa_node = -1;             // -1: unknown
  std::vector<PairedCard> cards;  // at least one
};

/// Device name -> names of its cards (domain, source address or bus id). Wins over the topology.
using PairingOverride = std::map<std::string, std::vector<std::string>>;

/// The GPUs wanted are PCI bus ids in any spelling, any subset, any order; none: host memory. The
/// result is ascending by index. kNotFound: an unknown GPU, device or card is named;
/// kInvalidArgument: no offers, a broken bus id, a GPU named twice, an override without cards.
Result<std::vector<DevicePlan>> pair_devices(const Topology& topology,
                                             const std::vector<CardOffer>& offers,
                                             const std::vector<std::string>& gpus_wanted,
                                             const PairingOverride& overrides = {});

/// The cards that a provider would offer on this machine, by bus, so that a saved topology can be
/// looked at elsewhere. efa: only EFA cards, never the ENA beside them; verbs: other RDMA cards;
/// tcp: cards with a network interface; shm: its one card that is no hardware. Another provider:
/// none.
std::vector<CardOffer> cards_in_topology(const Topology& topology, const std::string& provider);

}  // namespace penstock
