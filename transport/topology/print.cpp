#include "transport/topology/print.hpp"

#include <algorithm>
#include <set>

#include "transport/topology/bus_id.hpp"
#include "transport/topology/cpu_list.hpp"

namespace penstock {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

struct Line {
  std::size_t depth;
  std::string text;
};

struct View {
  const Topology& topology;
  const std::vector<CardOffer>& offers;
  const std::vector<DevicePlan>& devices;
  std::vector<Line> lines;

  template <class... Args>
  void line(std::size_t depth, fmt::format_string<Args...> format, Args&&... args) {
    lines.push_back({depth, fmt::format(format, std::forward<Args>(args)...)});
  }
};

/// Whether the branch at `depth` goes on below line `i`.
bool goes_on(const std::vector<Line>& lines, std::size_t i, std::size_t depth) {
  for (++i; i < lines.size() && lines[i].depth >= depth; ++i)
    if (lines[i].depth == depth) return true;
  return false;
}

std::string drawn(const std::vector<Line>& lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (std::size_t depth = 1; depth < lines[i].depth; ++depth)
      text += goes_on(lines, i, depth) ? "|  " : "   ";
    if (lines[i].depth > 0) text += goes_on(lines, i, lines[i].depth) ? "|- " : "`- ";
    text += lines[i].text + "\n";
  }
  return text;
}

const CardOffer* offer_of(const View& view, const IoDevice& device) {
  for (const CardOffer& offer : view.offers) {
    const auto bus = normal_bus_id(offer.bus);
    if (bus ? *bus == device.bus : view.topology.find_name(offer.domain) == &device) return &offer;
  }
  return nullptr;
}

/// "  for gpu0, gpu1"
std::string served_by(const View& view, const CardOffer& offer) {
  std::string names;
  for (const DevicePlan& plan : view.devices)
    for (const PairedCard& card : plan.cards)
      if (&view.offers[card.offer] == &offer) names += (names.empty() ? "" : ", ") + plan.name;
  return names.empty() ? "  not used" : "  for " + names;
}

std::string describe(const View& view, const IoDevice& device) {
  const auto plan =
      std::find_if(view.devices.begin(), view.devices.end(),
                   [&](const DevicePlan& p) { return !p.bus.empty() && p.bus == device.bus; });
  if (plan != view.devices.end()) return fmt::format("GPU {}  {}", device.bus, plan->name);
  if (device.is_nvidia_gpu()) return fmt::format("GPU {}  not used", device.bus);
  const CardOffer* offer = offer_of(view, device);
  const std::string name = offer == nullptr ? device.name() : offer->domain;
  return fmt::format("card {}  {}{}", device.bus.empty() ? "(no PCI)" : device.bus, name,
                     offer == nullptr ? "  not used" : served_by(view, *offer));
}

bool shown(const View& view, const IoDevice& device) {
  return device.is_network_card() || device.is_nvidia_gpu() ||
         std::any_of(view.devices.begin(), view.devices.end(), [&](const DevicePlan& plan) {
           return !plan.bus.empty() && plan.bus == device.bus;
         });
}

/// The nearest bridge that stands above more than one of the devices shown, else the farthest.
const Bridge* group_of(const View& view, const IoDevice& device) {
  for (const Bridge& bridge : device.bridges) {
    const auto below = std::count_if(
        view.topology.devices.begin(), view.topology.devices.end(), [&](const IoDevice& other) {
          return shown(view, other) && std::find(other.bridges.begin(), other.bridges.end(),
                                                 bridge) != other.bridges.end();
        });
    if (below > 1) return &bridge;
  }
  return device.bridges.empty() ? nullptr : &device.bridges.back();
}

void print_devices_near(View& view, int node) {
  std::string group = "";
  for (const IoDevice& device : view.topology.devices) {
    if (device.numa_node != node || !shown(view, device)) continue;
    const Bridge* bridge = group_of(view, device);
    const std::string name = bridge == nullptr ? "" : bridge->name;
    if (name != group && bridge != nullptr)
      view.line(1, "{} {}", bridge->root_complex ? "root complex" : "switch", name);
    group = name;
    view.line(bridge == nullptr ? 1 : 2, "{}", describe(view, device));
  }
}

void print_node(View& view, const NumaNode& node) {
  std::vector<int> cpus, siblings;
  for (const Core& core : view.topology.cores) {
    if (core.numa_node != node.index) continue;
    cpus.push_back(core.cpus.front());
    siblings.insert(siblings.end(), core.cpus.begin() + 1, core.cpus.end());
  }
  view.line(0, "NUMA node {}: {:.0f} GiB, cores {}{}", node.index,
            static_cast<double>(node.memory_bytes) / kGib, format_cpus(cpus),
            siblings.empty() ? "" : fmt::format(" (SMT {})", format_cpus(siblings)));
  print_devices_near(view, node.index);
}

/// "12 (shared with gpu1), of 12-23"
std::string core_text(const View& view, std::size_t device, const CorePlan& cores) {
  for (const PollerPlan& poller : cores.pollers) {
    const auto& mine = poller.devices;
    if (std::find(mine.begin(), mine.end(), device) == mine.end()) continue;
    std::string others;
    for (std::size_t d : mine)
      if (d != device) others += (others.empty() ? "" : ", ") + view.devices[d].name;
    return fmt::format("{}{}",
                       poller.cpu < 0
                           ? "not pinned"
                           : fmt::format("core {} of {}", poller.cpu, format_cpus(poller.share)),
                       others.empty() ? "" : ", poller shared with " + others);
  }
  return "no poller";
}

void print_device(View& view, std::size_t index, const CorePlan& cores) {
  const DevicePlan& device = view.devices[index];
  const std::string node =
      device.numa_node < 0 ? "NUMA node unknown" : fmt::format("NUMA node {}", device.numa_node);
  view.line(0, "{}{}: {}, {}", device.name, device.bus.empty() ? "" : " " + device.bus, node,
            core_text(view, index, cores));
  for (const PairedCard& card : device.cards) {
    const CardOffer& offer = view.offers[card.offer];
    view.line(1, "{}{}{}  {}", offer.domain, offer.bus.empty() ? "" : " " + offer.bus,
              offer.address.empty() ? "" : " " + offer.address, card.why);
  }
}

}  // namespace

std::string print_topology(const Topology& topology, const std::vector<CardOffer>& offers,
                           const std::vector<DevicePlan>& devices, const CorePlan& cores) {
  View view{topology, offers, devices, {}};
  if (!topology.machine.empty()) view.line(0, "{}", topology.machine);
  for (const NumaNode& node : topology.numa_nodes) print_node(view, node);
  const auto placeless = [&](const IoDevice& d) { return d.numa_node < 0 && shown(view, d); };
  if (std::any_of(topology.devices.begin(), topology.devices.end(), placeless)) {
    view.line(0, "NUMA node unknown");
    print_devices_near(view, -1);
  }
  view.line(0, "");
  for (std::size_t i = 0; i < devices.size(); ++i) print_device(view, i, cores);
  for (const std::string& warning : cores.warnings) view.line(0, "warning: {}", warning);
  return drawn(view.lines);
}

}  // namespace penstock
