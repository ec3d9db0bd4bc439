#include "actors/node/machine.hpp"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <thread>

#include "transport/fabric/provider.hpp"
#include "transport/gpu/inventory.hpp"
#include "transport/topology/core_plan.hpp"
#include "transport/topology/pairing.hpp"
#include "transport/topology/topology.hpp"

namespace penstock {
namespace {

Result<Topology> read_topology(const Settings& settings) {
  const auto& file = settings.fabric.topology_file;
  auto topology = file.empty() ? Topology::discover() : Topology::from_xml(file);
  if (!topology) return topology;
  if (!file.empty()) {
    spdlog::info("topology taken from {}", file.string());
    if (auto allowed = topology->allow_only(process_cpus()); !allowed)
      spdlog::warn("no core of {} is here: {}", file.string(), allowed.error().message);
  }
  if (!settings.devices.cpus.empty())
    if (auto allowed = topology->allow_only(settings.devices.cpus); !allowed)
      return fail(ErrorCode::kInvalidArgument, "devices.cpus: {}", allowed.error().message);
  return topology;
}

PairingOverride overrides_of(const Settings& settings) {
  PairingOverride overrides = settings.devices.overrides;
  for (const CardSettings& card : settings.fabric.cards)
    if (!card.device.empty())
      overrides[card.device].push_back(card.domain.empty() ? card.address : card.domain);
  return overrides;
}

PollerOptions poller_options(const FabricSettings& fabric, const TimeoutSettings& timeouts) {
  PollerOptions options;
  options.card_stall = timeouts.card_stall;
  options.card_window_bytes = fabric.window_bytes;
  options.card_window_operations = fabric.window_operations;
  options.link_window_bytes = fabric.link_window_bytes;
  options.link_window_operations = fabric.link_window_operations;
  options.immediate_credits = fabric.immediate_credits;
  const std::size_t cores = std::thread::hardware_concurrency();
  options.spin = spin_of(fabric.spin, cores);
  options.yields = has_few(cores);
  options.idle_tick = fabric.idle_tick;
  return options;
}

Result<std::vector<std::unique_ptr<Nic>>> open_cards(const std::vector<CardRequest>& requests) {
  std::vector<std::unique_ptr<Nic>> nics;
  for (const CardRequest& request : requests) {
    auto nic = open_card(request);
    if (!nic) return tl::unexpected(nic.error());
    nics.push_back(std::move(*nic));
  }
  return nics;
}

/// CUDA's number of the GPU that the device stands for; -1: host memory, or a GPU that this process
/// cannot use.
int gpu_of(const DevicePlan& plan) {
  if (plan.kind != DeviceKind::kGpu) return -1;
  const Gpu* gpu = gpu_inventory().find(plan.bus);
  return gpu == nullptr ? -1 : gpu->index;
}

/// The GPUs that become devices, by bus.
std::vector<std::string> wanted_gpus(const DeviceSettings& settings) {
  if (settings.gpu_choice == GpuChoice::kListed) return settings.gpus;
  std::vector<std::string> wanted;
  if (settings.gpu_choice == GpuChoice::kAuto)
    for (const Gpu& gpu : gpu_inventory().gpus) wanted.push_back(gpu.bus_id);
  return wanted;
}

/// What the thread asks of one device.
Poller::Device polled(const DevicePlan& plan, const std::vector<CardOffer>& offers,
                      const PollerOptions& options, const std::shared_ptr<Bell>& bell) {
  std::vector<CardRequest> requests;
  for (const PairedCard& card : plan.cards) {
    const CardOffer& offer = offers[card.offer];
    requests.push_back({offer.provider, offer.domain, offer.address, offer.numa_node, offer.bus,
                        gpu_of(plan) >= 0});
  }
  Poller::Device device;
  device.options = options;
  device.open_cards = [requests] { return open_cards(requests); };
  device.doorbell = [bell] { bell->ring(); };
  return device;
}

/// Where the device's host memory comes from. A topology file may name nodes that are not here.
int memory_node(const DevicePlan& plan) {
  const int node = plan.numa_node;
  if (node < 0 || std::filesystem::exists(fmt::format("/sys/devices/system/node/node{}", node)))
    return node;
  spdlog::warn("{} is on NUMA node {}, which is not here: its host memory comes from any node",
               plan.name, node);
  return -1;
}

std::shared_ptr<LocalDevice> make_device(const DevicePlan& plan, std::size_t index,
                                         std::unique_ptr<Poller> poller) {
  auto device = std::make_shared<LocalDevice>();
  device->name = plan.name;
  device->index = index;
  device->numa_node = memory_node(plan);
  device->gpu = gpu_of(plan);
  if (plan.kind == DeviceKind::kGpu && device->gpu < 0)
    spdlog::warn("{}: GPU {} cannot be used ({}): the device serves host memory only", plan.name,
                 plan.bus,
                 gpu_inventory().why_none.empty() ? "it is hidden from this process"
                                                  : gpu_inventory().why_none);
  std::vector<InboundCard> inbound;
  for (std::size_t i = 0; i < poller->nic_count(); ++i) {
    Nic& nic = poller->nic(i);
    device->card_names.push_back(nic.info().name);
    device->control_addresses.push_back(nic.control_address());
    inbound.push_back(
        {static_cast<std::uint16_t>(i), nic.inbound_generation(), nic.inbound_address()});
  }
  device->inbound = std::make_unique<InboundBoard>(std::move(inbound));
  device->poller = std::move(poller);
  device->registrar = std::make_unique<Worker>("ps-reg-" + plan.name);
  device->copier = std::make_unique<Worker>("ps-copy-" + plan.name);
  return device;
}

/// Starts one polling thread and opens the cards of its devices there.
Result<void> open_devices(const PollerPlan& poller, const std::vector<DevicePlan>& plans,
                          const std::vector<CardOffer>& offers, const PollerOptions& options,
                          bool on_pollers, Machine& machine) {
  Poller::Thread thread;
  // Actors of GPUs call CUDA, which may wait.
  const bool gpus = std::ranges::any_of(
      poller.devices, [&](std::size_t d) { return plans[d].kind == DeviceKind::kGpu; });
  const auto lent = on_pollers && !gpus ? std::make_shared<LentThread>() : nullptr;
  if (lent) machine.lent.push_back(lent);
  thread.side_work = lent;
  thread.name = "ps-" + plans[poller.devices.front()].name;
  if (poller.devices.size() > 1) thread.name += fmt::format("+{}", poller.devices.size() - 1);
  if (poller.cpu >= 0) thread.cpus = {poller.cpu};
  std::vector<Poller::Device> devices;
  for (const std::size_t d : poller.devices) {
    machine.bells[d] = std::make_shared<Bell>(lent);
    devices.push_back(polled(plans[d], offers, options, machine.bells[d]));
  }
  auto started = Poller::start_together(std::move(thread), std::move(devices));
  if (!started) return tl::unexpected(started.error());
  for (std::size_t i = 0; i < started->size(); ++i) {
    const std::size_t d = poller.devices[i];
    machine.devices[d] = make_device(plans[d], d, std::move((*started)[i]));
    machine.devices[d]->lent = lent;
  }
  return {};
}

std::string describe(const DevicePlan& plan, const LocalDevice& device, const CorePlan& cores,
                     const std::vector<CardOffer>& offers) {
  const std::size_t number = cores.poller_of(device.index);
  const PollerPlan& poller = cores.pollers[number];
  std::string text =
      fmt::format("  device    {:<6} NUMA {}, poller {} {}", plan.name,
                  plan.numa_node < 0 ? "?" : std::to_string(plan.numa_node), number,
                  poller.cpu < 0 ? "not pinned" : fmt::format("on core {}", poller.cpu));
  if (poller.devices.size() > 1)
    text += fmt::format(", shared by {} devices", poller.devices.size());
  if (!plan.bus.empty()) text += fmt::format(", GPU {}", plan.bus);
  if (const Gpu* gpu = device.gpu >= 0 ? gpu_inventory().find(plan.bus) : nullptr)
    text += fmt::format(" ({}, {})", gpu->name,
                        device.poller->nic(0).info().gpu_memory ? "gpudirect" : "staged");
  text += '\n';
  for (std::size_t i = 0; i < plan.cards.size(); ++i) {
    const CardOffer& offer = offers[plan.cards[i].offer];
    const NicInfo& info = device.poller->nic(i).info();
    text += fmt::format("    card    {} {} {} ({})\n", info.name, offer.address, offer.bus,
                        plan.cards[i].why);
  }
  return text;
}

/// Whoever reaches a card without keys may write to every region: as with the sockets, that takes
/// keys or the operator's word.
bool may_be_reached(const SecuritySettings& security) {
  return security.insecure || !security.cluster_key_file.empty();
}

/// As for the sockets, whose defaults are on loopback.
FabricSettings within_reach(const Settings& settings) {
  FabricSettings fabric = settings.fabric;
  if (fabric.provider != "tcp" || !fabric.cards.empty() || may_be_reached(settings.security))
    return fabric;
  spdlog::info(
      "neither fabric.cards nor security.cluster_key_file is set: card lo alone, for this machine "
      "alone");
  CardSettings loopback;
  loopback.domain = "lo";
  loopback.address = "127.0.0.1";
  fabric.cards.push_back(std::move(loopback));
  return fabric;
}

Result<void> check_reach(const Settings& settings, const std::vector<CardOffer>& offers) {
  if (may_be_reached(settings.security)) return {};
  for (const CardOffer& card : offers) {
    const bool local = card.provider == "shm" || card.domain == "lo" || card.address == "::1" ||
                       card.address.starts_with("127.");
    if (!local)
      return fail(ErrorCode::kInvalidArgument,
                  "fabric.cards: card {} {} is reached from other machines and has no keys: set "
                  "security.cluster_key_file (penstock keygen makes one, docs/security.md tells "
                  "how), use the card lo alone, or write security.insecure: true",
                  card.domain, card.address);
  }
  return {};
}

}  // namespace

Result<std::vector<CardOffer>> choose_cards(const FabricSettings& settings) {
  if (settings.cards.empty()) return list_cards(settings.provider);
  // Configured cards win; what the provider says of them (bus, NUMA node) is added where it lists
  // them. Loopback, for one, is never listed.
  const auto listed = list_cards(settings.provider);
  std::vector<CardOffer> offers;
  for (const CardSettings& card : settings.cards) {
    CardOffer offer;
    offer.provider = settings.provider;
    if (listed)
      for (const CardOffer& known : *listed)
        if ((card.domain.empty() || known.domain == card.domain) &&
            (card.address.empty() || known.address == card.address))
          offer = known;
    if (!card.domain.empty()) offer.domain = card.domain;
    if (!card.address.empty()) offer.address = card.address;
    offers.push_back(std::move(offer));
  }
  return offers;
}

Result<Machine> open_machine(const Settings& settings) {
  auto topology = read_topology(settings);
  if (!topology) return tl::unexpected(topology.error());
  const PollerOptions options = poller_options(settings.fabric, settings.timeouts);
  auto offers = choose_cards(within_reach(settings));
  if (!offers) return tl::unexpected(offers.error());
  if (auto safe = check_reach(settings, *offers); !safe) return tl::unexpected(safe.error());
  auto plans =
      pair_devices(*topology, *offers, wanted_gpus(settings.devices), overrides_of(settings));
  if (!plans) return tl::unexpected(plans.error());
  const CorePlan cores =
      plan_cores(*topology, *plans, {settings.devices.pollers, settings.devices.pin});
  for (const std::string& warning : cores.warnings) spdlog::warn("{}", warning);

  Machine machine;
  machine.devices.resize(plans->size());
  machine.bells.resize(plans->size());
  for (const PollerPlan& poller : cores.pollers)
    if (auto opened =
            open_devices(poller, *plans, *offers, options, settings.caf.on_pollers, machine);
        !opened)
      return tl::unexpected(opened.error());
  for (std::size_t i = 0; i < plans->size(); ++i)
    machine.description += describe((*plans)[i], *machine.devices[i], cores, *offers);
  return machine;
}

}  // namespace penstock
