#include "transport/topology/topology.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "transport/topology/cpu_list.hpp"

namespace penstock {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;
constexpr std::uint16_t kAmazon = 0x1d0f;
constexpr std::uint16_t kVgaController = 0x0300;
constexpr std::uint16_t k3dController = 0x0302;
constexpr std::uint16_t kNetworkBaseClass = 0x02;

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <class Accept>
std::vector<IoDevice> select(const std::vector<IoDevice>& devices, Accept accept) {
  std::vector<IoDevice> selected;
  std::copy_if(devices.begin(), devices.end(), std::back_inserter(selected), accept);
  return selected;
}

template <class Accept>
const IoDevice* find(const std::vector<IoDevice>& devices, Accept accept) {
  const auto found = std::find_if(devices.begin(), devices.end(), accept);
  return found == devices.end() ? nullptr : &*found;
}

}  // namespace

bool IoDevice::is_nvidia_gpu() const {
  return vendor == kNvidia && (pci_class == kVgaController || pci_class == k3dController);
}

bool IoDevice::is_network_card() const {
  return pci_class >> 8 == kNetworkBaseClass || !interfaces.empty() || !rdma_devices.empty();
}

// The ENA card beside the EFA cards has the same vendor and class; only the device id tells.
bool IoDevice::is_efa() const { return vendor == kAmazon && (device & 0xfff0) == 0xefa0; }

const std::string& IoDevice::name() const {
  if (!rdma_devices.empty()) return rdma_devices.front();
  return interfaces.empty() ? bus : interfaces.front();
}

std::vector<IoDevice> Topology::gpus() const {
  return select(devices, [](const IoDevice& d) { return d.is_nvidia_gpu(); });
}

std::vector<IoDevice> Topology::network_cards() const {
  return select(devices, [](const IoDevice& d) { return d.is_network_card(); });
}

const IoDevice* Topology::find_bus(std::string_view bus) const {
  if (bus.empty()) return nullptr;
  return find(devices, [&](const IoDevice& d) { return d.bus == bus; });
}

const IoDevice* Topology::find_name(std::string_view name) const {
  return find(devices, [&](const IoDevice& d) {
    return contains(d.interfaces, name) || contains(d.rdma_devices, name);
  });
}

std::vector<int> Topology::allowed_cpus() const {
  std::vector<int> cpus;
  for (const Core& core : cores) cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

Result<void> Topology::allow_only(const std::vector<int>& cpus) {
  std::vector<Core> left;
  for (Core core : cores) {
    std::erase_if(core.cpus,
                  [&](int cpu) { return std::find(cpus.begin(), cpus.end(), cpu) == cpus.end(); });
    if (!core.cpus.empty()) left.push_back(std::move(core));
  }
  if (left.empty())
    return fail(ErrorCode::kNotFound, "none of the CPUs {} is among those that may be used: {}",
                format_cpus(cpus), format_cpus(allowed_cpus()));
  cores = std::move(left);
  return {};
}

std::vector<int> process_cpus() {
  // The kernel refuses a set smaller than its own: grow until it fits.
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
    std::vector<int> cpus;
    const bool fits = sched_getaffinity(getpid(), bytes, set) == 0;
    if (fits)
      for (int cpu = 0; cpu < capacity; ++cpu)
        if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    CPU_FREE(set);
    if (fits) return cpus;
  }
  return {};
}

}  // namespace penstock
