// The machines that the tests of this folder look at.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "transport/topology/pairing.hpp"
#include "transport/topology/topology.hpp"

namespace penstock {

inline std::string path_of(const std::string& machine) {
  return std::string(PENSTOCK_TOPOLOGY_DIR) + "/" + machine + ".xml";
}

inline Topology load_machine(const std::string& machine) {
  auto topology = Topology::from_xml(path_of(machine));
  EXPECT_TRUE(topology.has_value()) << topology.error().message;
  return topology.value_or(Topology{});
}

inline std::vector<std::string> gpu_buses(const Topology& topology) {
  std::vector<std::string> buses;
  for (const IoDevice& gpu : topology.gpus()) buses.push_back(gpu.bus);
  return buses;
}

inline std::vector<std::string> card_names(const DevicePlan& plan,
                                           const std::vector<CardOffer>& offers) {
  std::vector<std::string> names;
  for (const PairedCard& card : plan.cards) names.push_back(offers.at(card.offer).domain);
  return names;
}

/// A machine without NUMA nodes, PCI or cores; tests add what they are about.
inline Topology bare_machine(int numa_nodes, int cores_per_node) {
  Topology topology;
  for (int node = 0; node < numa_nodes; ++node) {
    topology.numa_nodes.push_back({node, 1ull << 30});
    for (int core = 0; core < cores_per_node; ++core)
      topology.cores.push_back({node, {node * cores_per_node + core}});
  }
  return topology;
}

inline IoDevice gpu_at(const std::string& bus, int numa_node, std::vector<Bridge> bridges = {}) {
  IoDevice device;
  device.bus = bus;
  device.pci_class = 0x0302;
  device.vendor = 0x10de;
  device.device = 0x2330;
  device.numa_node = numa_node;
  device.bridges = std::move(bridges);
  return device;
}

inline IoDevice card_at(const std::string& bus, int numa_node, const std::string& interface,
                        std::vector<Bridge> bridges = {}) {
  IoDevice device;
  device.bus = bus;
  device.pci_class = 0x0200;
  device.vendor = 0x15b3;
  device.device = 0x101d;
  device.numa_node = numa_node;
  device.interfaces = {interface};
  device.bridges = std::move(bridges);
  return device;
}

}  // namespace penstock
