// What a machine is made of, as far as pairing and pinning need it: NUMA nodes, the cores that this
// process may use, GPUs and network cards with the PCI bridges above them.
//
// A plain value: hwloc fills it once, everything else in this folder is pure over it, so that the
// file of a machine that is not at hand tests the same code.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "transport/error.hpp"

namespace penstock {

struct NumaNode {
  int index = 0;  // as the operating system numbers it
  std::uint64_t memory_bytes = 0;
  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

/// A physical core with those of its hardware threads that may be used, ascending, at least one.
struct Core {
  int numa_node = -1;  // -1: unknown
  std::vector<int> cpus;
  friend bool operator==(const Core&, const Core&) = default;
};

struct Bridge {
  std::string name;           // "0000:45:00.0"; for a root complex its buses, "0000:[44-54]"
  bool root_complex = false;  // joins PCI to the CPU: not a switch
  friend bool operator==(const Bridge&, const Bridge&) = default;
};

/// A PCI device, or a network interface that is on no PCI bus (then bus is "" and the ids are 0).
struct IoDevice {
  std::string bus;  // "0000:4f:00.0"
  std::uint16_t pci_class = 0;
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  int numa_node = -1;                     // -1: unknown, or near to several
  std::vector<Bridge> bridges;            // above it, the nearest first
  std::vector<std::string> interfaces;    // network interfaces: "ens5"
  std::vector<std::string> rdma_devices;  // "rdmap79s0", "mlx5_0"

  bool is_nvidia_gpu() const;
  bool is_network_card() const;
  bool is_efa() const;
  /// The RDMA device's name, else the interface's, else the bus id.
  const std::string& name() const;
  friend bool operator==(const IoDevice&, const IoDevice&) = default;
};

struct Topology {
  std::string machine;  // product name, "" when unknown
  std::vector<NumaNode> numa_nodes;
  std::vector<Core> cores;
  std::vector<IoDevice> devices;  // ascending by bus

  /// This machine; cores outside the process's cpuset and affinity are left out. kUnsupported when
  /// the environment made hwloc describe another machine.
  static Result<Topology> discover();

  /// A machine saved with `lstopo FILE.xml` (hwloc 2). The file is not trusted: a broken one is
  /// kInvalidArgument, whatever hwloc does with it. Its cores are the file's: call allow_only with
  /// process_cpus() before pinning to them.
  static Result<Topology> from_xml(const std::filesystem::path& path);

  /// Leaves only these hardware threads. kNotFound, and nothing changed, when none of them is here.
  Result<void> allow_only(const std::vector<int>& cpus);

  std::vector<IoDevice> gpus() const;
  std::vector<IoDevice> network_cards() const;
  const IoDevice* find_bus(std::string_view bus) const;
  /// By interface or RDMA device name.
  const IoDevice* find_name(std::string_view name) const;
  /// Every hardware thread that may be used, ascending.
  std::vector<int> allowed_cpus() const;
  friend bool operator==(const Topology&, const Topology&) = default;
};

/// What the scheduler lets this process run on, by cpuset and affinity, ascending.
std::vector<int> process_cpus();

}  // namespace penstock
