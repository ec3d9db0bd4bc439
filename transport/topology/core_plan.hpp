// Which core polls for which devices. Pure over a Topology and the paired devices.
//
// Each poller gets the first hardware thread of a physical core on its device's NUMA node, so that
// no two pollers sit on SMT siblings. A node's cores are cut into one share per GPU of the machine,
// in bus order (on a p5: 12 cores each), so that services with different GPUs do not meet on a
// core.
#pragma once

#include <string>
#include <vector>

#include "transport/topology/pairing.hpp"
#include "transport/topology/topology.hpp"

namespace penstock {

struct PollerPlan {
  int cpu = -1;            // the hardware thread to pin to; -1: not pinned
  std::vector<int> share;  // first threads of the cores set aside for its devices; [0] is `cpu`
  std::vector<std::size_t> devices;  // indexes into the devices that were given, at least one
};

struct CorePlan {
  /// The number of the poller of a device that was planned.
  std::size_t poller_of(std::size_t device) const;

  std::vector<PollerPlan> pollers;
  /// What differs from one local core per device, in words, for the log.
  std::vector<std::string> warnings;
};

struct CorePlanOptions {
  std::size_t pollers = 0;  // at most so many threads; 0: one per device where cores suffice
  bool pin = true;
};

/// Devices share a poller when their node has fewer cores than devices, or fewer pollers are asked
/// for. Devices on a node without a usable core are polled from another one, with a warning.
CorePlan plan_cores(const Topology& topology, const std::vector<DevicePlan>& devices,
                    const CorePlanOptions& options = {});

}  // namespace penstock
