#include "actors/node/machine.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "transport/fabric/provider.hpp"
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

PollerOptions poller_options(const FabricSettings& fabric) {
  PollerOptions options;
  options.card_window_bytes = fabric.window_bytes;
  options.card_window_operations = fabric.window_operations;
  options.link_window_bytes = fabric.link_window_bytes;
  options.link_window_operations = fabric.link_window_operations;
  options.immediate_credits = fabric.immediate_credits;
  options.spin = fabric.spin;
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

Result<std::shared_ptr<LocalDevice>> open_device(const DevicePlan& plan, std::size_t index, int cpu,
                                                 const std::vector<CardOffer>& offers,
                                                 const FabricSettings& fabric,
                                                 const std::shared_ptr<Bell>& bell) {
  std::vector<CardRequest> requests;
  for (const PairedCard& card : plan.cards) {
    const CardOffer& offer = offers[card.offer];
    requests.push_back({offer.provider, offer.domain, offer.address, offer.numa_node, offer.bus});
  }
  Poller::Setup setup;
  setup.name = "ps-" + plan.name;
  if (cpu >= 0) setup.cpus = {cpu};
  setup.options = poller_options(fabric);
  setup.open_cards = [requests] { return open_cards(requests); };
  setup.doorbell = [bell] { bell->ring(); };
  auto poller = Poller::start(std::move(setup));
  if (!poller) return tl::unexpected(poller.error());

  auto device = std::make_shared<LocalDevice>();
  device->name = plan.name;
  device->index = index;
  device->numa_node = plan.numa_node;
  std::vector<InboundCard> inbound;
  for (std::size_t i = 0; i < (*poller)->nic_count(); ++i) {
    Nic& nic = (*poller)->nic(i);
    device->card_names.push_back(nic.info().name);
    device->control_addresses.push_back(nic.control_address());
    inbound.push_back(
        {static_cast<std::uint16_t>(i), nic.inbound_generation(), nic.inbound_address()});
  }
  device->inbound = std::make_unique<InboundBoard>(std::move(inbound));
  device->poller = std::move(*poller);
  device->registrar = std::make_unique<Worker>("ps-reg-" + plan.name);
  device->copier = std::make_unique<Worker>("ps-copy-" + plan.name);
  return device;
}

std::string describe(const DevicePlan& plan, const LocalDevice& device, int cpu,
                     const std::vector<CardOffer>& offers) {
  std::string text = fmt::format("  device    {:<6} NUMA {}, poller {}\n", plan.name,
                                 plan.numa_node < 0 ? "?" : std::to_string(plan.numa_node),
                                 cpu < 0 ? "not pinned" : fmt::format("on core {}", cpu));
  for (std::size_t i = 0; i < plan.cards.size(); ++i) {
    const CardOffer& offer = offers[plan.cards[i].offer];
    const NicInfo& info = device.poller->nic(i).info();
    text += fmt::format("    card    {} {} {} ({})\n", info.name, offer.address, offer.bus,
                        plan.cards[i].why);
  }
  return text;
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
  auto offers = choose_cards(settings.fabric);
  if (!offers) return tl::unexpected(offers.error());
  const bool listed = settings.devices.gpu_choice == GpuChoice::kListed;
  auto plans =
      pair_devices(*topology, *offers, listed ? settings.devices.gpus : std::vector<std::string>{},
                   overrides_of(settings));
  if (!plans) return tl::unexpected(plans.error());
  const CorePlan cores =
      plan_cores(*topology, *plans, {settings.devices.pollers, settings.devices.pin});
  for (const std::string& warning : cores.warnings) spdlog::warn("{}", warning);

  Machine machine;
  for (std::size_t i = 0; i < plans->size(); ++i) {
    int cpu = -1;
    for (const PollerPlan& poller : cores.pollers)
      if (std::find(poller.devices.begin(), poller.devices.end(), i) != poller.devices.end())
        cpu = poller.cpu;
    auto bell = std::make_shared<Bell>();
    auto device = open_device((*plans)[i], i, cpu, *offers, settings.fabric, bell);
    if (!device) return tl::unexpected(device.error());
    machine.description += describe((*plans)[i], **device, cpu, *offers);
    machine.devices.push_back(std::move(*device));
    machine.bells.push_back(std::move(bell));
  }
  return machine;
}

}  // namespace penstock
