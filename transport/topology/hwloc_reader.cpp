#include "transport/topology/hwloc_reader.hpp"

#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "transport/topology/bus_id.hpp"

namespace penstock {
namespace {

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, Destroy>;

// Names go to terminals and logs: nothing but printable characters leaves this file.
std::string printable(const char* text) {
  std::string result = text == nullptr ? "" : text;
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return result;
}

int only_node_of(hwloc_const_nodeset_t nodeset) {
  const bool one = nodeset != nullptr && hwloc_bitmap_weight(nodeset) == 1;
  return one ? hwloc_bitmap_first(nodeset) : -1;
}

int numa_node_near(hwloc_topology_t topology, hwloc_obj_t object) {
  const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, object);
  return place == nullptr ? -1 : only_node_of(place->nodeset);
}

std::vector<NumaNode> numa_nodes_of(hwloc_topology_t topology) {
  std::vector<NumaNode> nodes;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr)
    nodes.push_back({static_cast<int>(object->os_index), object->attr->numanode.local_memory});
  std::sort(nodes.begin(), nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.index < b.index; });
  return nodes;
}

std::vector<Core> cores_of(hwloc_topology_t topology) {
  // Some virtual machines tell no cores: then each hardware thread counts as one.
  const hwloc_obj_type_t type =
      hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  std::vector<Core> cores;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr) {
    Core core;
    // A core may have more than one node (fast memory beside the ordinary): the first is its DRAM.
    core.numa_node = hwloc_bitmap_first(object->nodeset);
    for (int cpu = hwloc_bitmap_first(object->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(object->cpuset, cpu))
      core.cpus.push_back(cpu);
    if (!core.cpus.empty()) cores.push_back(std::move(core));
  }
  std::sort(cores.begin(), cores.end(),
            [](const Core& a, const Core& b) { return a.cpus.front() < b.cpus.front(); });
  return cores;
}

std::vector<Bridge> bridges_above(hwloc_obj_t object) {
  std::vector<Bridge> bridges;
  for (hwloc_obj_t up = object->parent; up != nullptr && up->type == HWLOC_OBJ_BRIDGE;
       up = up->parent) {
    const auto& bridge = up->attr->bridge;
    if (bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) {
      const auto& pci = bridge.upstream.pci;
      bridges.push_back({format_bus_id(pci.domain, pci.bus, pci.dev, pci.func), false});
    } else {
      const auto& behind = bridge.downstream.pci;
      bridges.push_back({fmt::format("{:04x}:[{:02x}-{:02x}]", behind.domain, behind.secondary_bus,
                                     behind.subordinate_bus),
                         true});
    }
  }
  return bridges;
}

void add_os_device(IoDevice& device, hwloc_obj_t object) {
  if (object->type != HWLOC_OBJ_OS_DEVICE || object->name == nullptr) return;
  const hwloc_obj_osdev_type_t type = object->attr->osdev.type;
  if (type == HWLOC_OBJ_OSDEV_NETWORK) device.interfaces.push_back(printable(object->name));
  if (type == HWLOC_OBJ_OSDEV_OPENFABRICS) device.rdma_devices.push_back(printable(object->name));
}

IoDevice pci_device_of(hwloc_topology_t topology, hwloc_obj_t object) {
  const auto& pci = object->attr->pcidev;
  IoDevice device;
  device.bus = format_bus_id(pci.domain, pci.bus, pci.dev, pci.func);
  device.pci_class = pci.class_id;
  device.vendor = pci.vendor_id;
  device.device = pci.device_id;
  device.numa_node = numa_node_near(topology, object);
  device.bridges = bridges_above(object);
  for (hwloc_obj_t child = object->io_first_child; child != nullptr; child = child->next_sibling)
    add_os_device(device, child);
  std::sort(device.interfaces.begin(), device.interfaces.end());
  std::sort(device.rdma_devices.begin(), device.rdma_devices.end());
  return device;
}

std::vector<IoDevice> devices_of(hwloc_topology_t topology) {
  std::vector<IoDevice> devices;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_pcidev(topology, object)) != nullptr)
    devices.push_back(pci_device_of(topology, object));
  object = nullptr;
  while ((object = hwloc_get_next_osdev(topology, object)) != nullptr) {
    if (object->parent != nullptr && object->parent->type == HWLOC_OBJ_PCI_DEVICE) continue;
    IoDevice device;
    device.numa_node = numa_node_near(topology, object);
    add_os_device(device, object);
    if (device.is_network_card()) devices.push_back(std::move(device));
  }
  std::stable_sort(devices.begin(), devices.end(),
                   [](const IoDevice& a, const IoDevice& b) { return a.bus < b.bus; });
  return devices;
}

Result<Topology> load(HwlocTopology topology) {
  // Bridges tell which devices share a switch; distances and the like are not needed, and each kind
  // that is not read is one less that a broken file can break.
  hwloc_topology_set_io_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_flags(topology.get(), HWLOC_TOPOLOGY_FLAG_NO_DISTANCES |
                                               HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
                                               HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS);
  if (hwloc_topology_load(topology.get()) != 0)
    return fail(ErrorCode::kInvalidArgument, "hwloc cannot load it");
  Topology result;
  const hwloc_obj_t root = hwloc_get_root_obj(topology.get());
  result.machine = printable(hwloc_obj_get_info_by_name(root, "DMIProductName"));
  result.numa_nodes = numa_nodes_of(topology.get());
  result.cores = cores_of(topology.get());
  result.devices = devices_of(topology.get());
  if (result.cores.empty()) return fail(ErrorCode::kInvalidArgument, "it has no cores");
  return result;
}

Result<HwlocTopology> new_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0)
    return fail(ErrorCode::kResourceExhausted, "hwloc cannot start: out of memory");
  return HwlocTopology(raw);
}

}  // namespace

Result<Topology> read_this_machine() {
  auto topology = new_topology();
  if (!topology) return tl::unexpected(topology.error());
  return load(std::move(*topology));
}

Result<Topology> read_xml(const std::string& xml) {
  auto topology = new_topology();
  if (!topology) return tl::unexpected(topology.error());
  const int size_with_end = static_cast<int>(xml.size()) + 1;
  if (hwloc_topology_set_xmlbuffer(topology->get(), xml.c_str(), size_with_end) != 0)
    return fail(ErrorCode::kInvalidArgument, "it is not hwloc 2 XML");
  return load(std::move(*topology));
}

}  // namespace penstock
