#include "transport/topology/pairing.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "transport/topology/bus_id.hpp"

namespace penstock {
namespace {

/// An offer with what the topology knows about it.
struct Card {
  std::size_t offer = 0;
  std::string bus;
  int numa_node = -1;
  std::vector<Bridge> bridges;
};

struct Gpu {
  std::string bus;
  int numa_node = -1;
  std::vector<Bridge> bridges;
  bool in_topology = true;
};

std::vector<Card> place_cards(const Topology& topology, const std::vector<CardOffer>& offers) {
  std::vector<Card> cards;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const CardOffer& offer = offers[i];
    const auto bus = normal_bus_id(offer.bus);
    const IoDevice* device = bus ? topology.find_bus(*bus) : topology.find_name(offer.domain);
    Card card{i, bus ? *bus : "", offer.numa_node, {}};
    if (device != nullptr) {
      card.bus = device->bus;
      card.bridges = device->bridges;
      // The topology may be a file that corrects what the machine says: it wins where it knows.
      if (device->numa_node >= 0) card.numa_node = device->numa_node;
    }
    cards.push_back(std::move(card));
  }
  std::stable_sort(cards.begin(), cards.end(),
                   [](const Card& a, const Card& b) { return a.bus < b.bus; });
  return cards;
}

/// The first bridge above the GPU that is above a card too.
const Bridge* first_marked(const Gpu& gpu, const std::vector<Card>& cards) {
  for (const Bridge& bridge : gpu.bridges)
    for (const Card& card : cards)
      if (std::find(card.bridges.begin(), card.bridges.end(), bridge) != card.bridges.end())
        return &bridge;
  return nullptr;
}

template <class Accept>
std::vector<Card> cards_where(const std::vector<Card>& cards, Accept accept) {
  std::vector<Card> selected;
  std::copy_if(cards.begin(), cards.end(), std::back_inserter(selected), accept);
  return selected;
}

/// The cards that a GPU shares with the other GPUs of the same pool.
struct Pool {
  std::string name;  // the bridge, the node, or "any"
  std::vector<Card> cards;
  std::string reason;
};

Pool pool_of(const Gpu& gpu, const std::vector<Card>& cards) {
  if (const Bridge* bridge = first_marked(gpu, cards)) {
    auto below = cards_where(cards, [&](const Card& card) {
      return std::find(card.bridges.begin(), card.bridges.end(), *bridge) != card.bridges.end();
    });
    return {bridge->name, std::move(below),
            fmt::format("same PCIe {} {}", bridge->root_complex ? "root complex" : "switch",
                        bridge->name)};
  }
  if (gpu.numa_node >= 0) {
    auto near =
        cards_where(cards, [&](const Card& card) { return card.numa_node == gpu.numa_node; });
    auto reason = fmt::format("same NUMA node {}", gpu.numa_node);
    if (!near.empty()) return {reason, std::move(near), reason};
  }
  if (cards.size() == 1) return {"any", cards, "only card"};
  if (!gpu.in_topology) return {"any", cards, "any card: the topology does not show this GPU"};
  if (gpu.numa_node < 0) return {"any", cards, "any card: the GPU's NUMA node is unknown"};
  return {"any", cards, fmt::format("any card: none on NUMA node {}", gpu.numa_node)};
}

/// Part `i` of `cards` cut into `parts`; with fewer cards than parts neighbours get the same one.
std::vector<PairedCard> part_of(const Pool& pool, std::size_t i, std::size_t parts) {
  const std::size_t n = pool.cards.size();
  const std::size_t begin = i * n / parts;
  const std::size_t end = std::max(begin + 1, (i + 1) * n / parts);
  const std::string shared =
      n < parts ? fmt::format(", shared: {} GPUs on {} card{}", parts, n, n == 1 ? "" : "s")
                : std::string();
  std::vector<PairedCard> part;
  for (std::size_t c = begin; c < end; ++c)
    part.push_back({pool.cards[c].offer, pool.reason + shared});
  return part;
}

/// All GPUs of the machine by bus: what the topology shows and what is wanted.
std::vector<Gpu> gpus_of(const Topology& topology, const std::set<std::string>& wanted) {
  std::vector<Gpu> gpus;
  for (const IoDevice& device : topology.gpus())
    gpus.push_back({device.bus, device.numa_node, device.bridges});
  for (const std::string& bus : wanted) {
    const auto same = [&](const Gpu& gpu) { return gpu.bus == bus; };
    if (std::any_of(gpus.begin(), gpus.end(), same)) continue;
    const IoDevice* device = topology.find_bus(bus);
    gpus.push_back(device == nullptr ? Gpu{bus, -1, {}, false}
                                     : Gpu{bus, device->numa_node, device->bridges});
  }
  std::sort(gpus.begin(), gpus.end(), [](const Gpu& a, const Gpu& b) { return a.bus < b.bus; });
  return gpus;
}

Result<std::set<std::string>> check_wanted(const Topology& topology,
                                           const std::vector<std::string>& gpus_wanted) {
  std::set<std::string> wanted;
  for (const std::string& text : gpus_wanted) {
    auto bus = normal_bus_id(text);
    if (!bus) return tl::unexpected(bus.error());
    if (!wanted.insert(*bus).second)
      return fail(ErrorCode::kInvalidArgument, "GPU {} is named twice", *bus);
    // A sandbox may hide the PCI tree while the GPU works: only a tree with GPUs can contradict.
    const auto known = topology.gpus();
    if (known.empty() || topology.find_bus(*bus) != nullptr) continue;
    std::string there;
    for (const IoDevice& gpu : known) there += (there.empty() ? "" : ", ") + gpu.bus;
    return fail(ErrorCode::kNotFound, "no GPU {} in the topology; there are {}", *bus, there);
  }
  return wanted;
}

std::vector<DevicePlan> plan_gpus(const std::vector<Gpu>& gpus, const std::vector<Card>& cards,
                                  const std::set<std::string>& wanted) {
  std::vector<Pool> pools;
  for (const Gpu& gpu : gpus) pools.push_back(pool_of(gpu, cards));
  std::map<std::string, std::size_t> gpus_of_pool;
  for (const Pool& pool : pools) ++gpus_of_pool[pool.name];
  std::map<std::string, std::size_t> next_part;
  std::vector<DevicePlan> plans;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const std::string& pool = pools[i].name;
    const std::size_t part = next_part[pool]++;
    if (!wanted.contains(gpus[i].bus)) continue;
    plans.push_back({fmt::format("gpu{}", i), DeviceKind::kGpu, static_cast<int>(i), gpus[i].bus,
                     gpus[i].numa_node, part_of(pools[i], part, gpus_of_pool[pool])});
  }
  return plans;
}

std::vector<PairedCard> cards_for_host(int node, const std::vector<Card>& cards) {
  std::vector<PairedCard> paired;
  for (const Card& card : cards) {
    if (card.numa_node == node)
      paired.push_back({card.offer, fmt::format("same NUMA node {}", node)});
    else if (card.numa_node < 0)
      paired.push_back({card.offer, "NUMA node of the card unknown: serves every node"});
  }
  if (paired.empty())
    for (const Card& card : cards)
      paired.push_back({card.offer, fmt::format("any card: none on NUMA node {}", node)});
  if (cards.size() == 1) paired.front().why = "only card";
  return paired;
}

/// The nodes with memory; without one that says so, all nodes; without nodes, node 0.
std::vector<int> host_nodes(const Topology& topology) {
  std::vector<int> nodes;
  for (const NumaNode& node : topology.numa_nodes)
    if (node.memory_bytes > 0) nodes.push_back(node.index);
  if (nodes.empty())
    for (const NumaNode& node : topology.numa_nodes) nodes.push_back(node.index);
  if (nodes.empty()) nodes.push_back(0);
  return nodes;
}

std::vector<DevicePlan> plan_hosts(const Topology& topology, const std::vector<Card>& cards) {
  std::vector<DevicePlan> plans;
  for (int node : host_nodes(topology))
    plans.push_back({fmt::format("host{}", node), DeviceKind::kHost, node, "", node,
                     cards_for_host(node, cards)});
  return plans;
}

Result<std::vector<PairedCard>> overridden_cards(const std::string& device,
                                                 const std::vector<std::string>& names,
                                                 const std::vector<CardOffer>& offers) {
  if (names.empty())
    return fail(ErrorCode::kInvalidArgument, "override of {}: names no card", device);
  std::vector<PairedCard> paired;
  for (const std::string& name : names) {
    const auto bus = normal_bus_id(name);
    const auto found = std::find_if(offers.begin(), offers.end(), [&](const CardOffer& offer) {
      return offer.domain == name || (!name.empty() && offer.address == name) ||
             (bus && normal_bus_id(offer.bus).value_or("") == *bus);
    });
    if (found == offers.end()) {
      std::string there;
      for (const CardOffer& offer : offers) there += (there.empty() ? "" : ", ") + offer.domain;
      return fail(ErrorCode::kNotFound, "override of {}: no card '{}'; there are {}", device, name,
                  there);
    }
    const auto offer = static_cast<std::size_t>(found - offers.begin());
    const auto same = [&](const PairedCard& card) { return card.offer == offer; };
    if (std::any_of(paired.begin(), paired.end(), same))
      return fail(ErrorCode::kInvalidArgument, "override of {}: card '{}' is named twice", device,
                  name);
    paired.push_back({offer, "override"});
  }
  return paired;
}

/// Applies the overrides. One for a GPU that exists but is not wanted here is checked and left out:
/// the same configuration serves services with different GPUs.
Result<void> apply_overrides(const PairingOverride& overrides, const std::vector<CardOffer>& offers,
                             std::size_t gpu_count, std::vector<DevicePlan>& plans) {
  for (const auto& [device, names] : overrides) {
    auto paired = overridden_cards(device, names, offers);
    if (!paired) return tl::unexpected(paired.error());
    const auto plan =
        std::find_if(plans.begin(), plans.end(),
                     [&wanted = device](const DevicePlan& p) { return p.name == wanted; });
    if (plan != plans.end()) {
      plan->cards = std::move(*paired);
      continue;
    }
    std::size_t gpu = 0;
    while (gpu < gpu_count && device != fmt::format("gpu{}", gpu)) ++gpu;
    if (gpu < gpu_count) continue;
    std::string there;
    for (const DevicePlan& p : plans) there += (there.empty() ? "" : ", ") + p.name;
    return fail(ErrorCode::kNotFound, "override of {}: no such device; there are {}", device,
                there);
  }
  return {};
}

}  // namespace

Result<std::vector<DevicePlan>> pair_devices(const Topology& topology,
                                             const std::vector<CardOffer>& offers,
                                             const std::vector<std::string>& gpus_wanted,
                                             const PairingOverride& overrides) {
  if (offers.empty())
    return fail(ErrorCode::kInvalidArgument, "there is no card to pair devices with");
  const auto wanted = check_wanted(topology, gpus_wanted);
  if (!wanted) return tl::unexpected(wanted.error());
  const std::vector<Card> cards = place_cards(topology, offers);
  const std::vector<Gpu> gpus = gpus_of(topology, *wanted);
  auto plans = wanted->empty() ? plan_hosts(topology, cards) : plan_gpus(gpus, cards, *wanted);
  if (auto applied = apply_overrides(overrides, offers, gpus.size(), plans); !applied)
    return tl::unexpected(applied.error());
  return plans;
}

std::vector<CardOffer> cards_in_topology(const Topology& topology, const std::string& provider) {
  if (provider == "shm") return {{provider, "shm", "", "", -1, 0}};
  std::vector<CardOffer> offers;
  for (const IoDevice& device : topology.network_cards()) {
    const bool rdma = !device.rdma_devices.empty();
    const bool fits = (provider == "efa" && device.is_efa()) ||
                      (provider == "verbs" && rdma && !device.is_efa()) ||
                      (provider == "tcp" && !device.interfaces.empty());
    if (!fits) continue;
    const std::string& name = provider == "tcp" ? device.interfaces.front() : device.name();
    offers.push_back({provider, name, "", device.bus, device.numa_node, 0});
  }
  return offers;
}

}  // namespace penstock
