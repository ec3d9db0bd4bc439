// The machine and what was decided about it, as text for people.
#pragma once

#include <string>
#include <vector>

#include "transport/topology/core_plan.hpp"
#include "transport/topology/pairing.hpp"
#include "transport/topology/topology.hpp"

namespace penstock {

/// A tree: NUMA node > PCIe switch > GPUs, and cards with the devices that they serve; then each
/// device with its core, its cards and why it has them, then the warnings. Ends with a newline.
std::string print_topology(const Topology& topology, const std::vector<CardOffer>& offers,
                           const std::vector<DevicePlan>& devices, const CorePlan& cores);

}  // namespace penstock
