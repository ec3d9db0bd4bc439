// penstock topology
#include "transport/topology/topology.hpp"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/penstock/commands.hpp"
#include "apps/penstock/table.hpp"
#include "transport/topology/core_plan.hpp"
#include "transport/topology/pairing.hpp"
#include "transport/topology/print.hpp"

namespace penstock::app {
namespace {

struct TopologyArguments {
  std::string xml;
  std::string provider;
  std::vector<std::string> gpus;  // empty: all that are there
  std::vector<int> cpus;          // empty: all that may be used
  bool paths = false;
};

template <class T>
T value_or_exit(Result<T> result) {
  if (result) return std::move(*result);
  throw Exit(ExitCode::kFailed,
             fmt::format("{}: {}", name_of(result.error().code), result.error().message));
}

/// Of a saved machine, what its cards would be; of this one, what libfabric offers.
std::vector<CardOffer> offers_of(const Topology& topology, const TopologyArguments& arguments) {
  if (!arguments.xml.empty()) return cards_in_topology(topology, arguments.provider);
  return value_or_exit(list_cards(arguments.provider));
}

std::vector<std::string> gpus_of(const Topology& topology, const TopologyArguments& arguments) {
  if (arguments.gpus == std::vector<std::string>{"none"}) return {};
  if (!arguments.gpus.empty()) return arguments.gpus;
  std::vector<std::string> buses;
  for (const auto& gpu : topology.gpus()) buses.push_back(gpu.bus);
  return buses;
}

nlohmann::json json_of(const std::vector<CardOffer>& offers, const std::vector<DevicePlan>& devices,
                       const CorePlan& cores) {
  auto list = nlohmann::json::array();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto& device = devices[i];
    auto cards = nlohmann::json::array();
    for (const auto& card : device.cards) {
      const auto& offer = offers.at(card.offer);
      cards.push_back({{"domain", offer.domain},
                       {"bus", offer.bus},
                       {"address", offer.address},
                       {"numa_node", offer.numa_node},
                       {"why", card.why}});
    }
    int cpu = -1;
    for (const auto& poller : cores.pollers) {
      for (auto served : poller.devices) cpu = served == i ? poller.cpu : cpu;
    }
    list.push_back({{"name", device.name},
                    {"kind", device.kind == DeviceKind::kGpu ? "gpu" : "host"},
                    {"bus", device.bus},
                    {"numa_node", device.numa_node},
                    {"poller_cpu", cpu},
                    {"cards", std::move(cards)}});
  }
  return {{"devices", std::move(list)}, {"warnings", cores.warnings}};
}

/// The ways from memory of one kind of a device to the other kind, on this node and to another.
void print_paths(const Globals& globals) {
  auto client = globals.connect();
  const auto status = nlohmann::json::parse(client.call("status", "{}"));
  Table table({"DEVICE", "FROM", "TO", "ON THIS NODE", "TO ANOTHER NODE"});
  auto list = nlohmann::json::array();
  for (const auto& device : status.value("devices", nlohmann::json::array())) {
    const std::string reach = device.value("gpu_reach", "none");
    const std::string small =
        device.value("staging", false) ? "direct, packed or inline" : "direct or inline";
    for (const char* from : {"host", "gpu"})
      for (const char* to : {"host", "gpu"}) {
        const bool from_gpu = std::string_view(from) == "gpu";
        const bool to_gpu = std::string_view(to) == "gpu";
        if (from_gpu && reach == "none") continue;
        // What the other node's cards reach it says itself when it is asked; like ours, most times.
        const std::string away = from_gpu ? (to_gpu && reach == "gpudirect"
                                                 ? "gpudirect; staged where its cards do not reach"
                                                 : reach)
                                 : to_gpu ? "gpudirect or staged, as its cards reach"
                                          : small;
        const std::string here =
            from_gpu || to_gpu ? (reach == "none" ? "no GPU here" : "local_kernel") : "local_copy";
        const auto name = device.value("name", "");
        table.add({name, from, to, here, away});
        list.push_back(
            {{"device", name}, {"from", from}, {"to", to}, {"local", here}, {"remote", away}});
      }
  }
  if (globals.json) return print_json(nlohmann::json{{"paths", list}}.dump());
  table.print();
}

void run(const Globals& globals, const TopologyArguments& arguments) {
  if (arguments.paths) return print_paths(globals);
  auto topology = value_or_exit(arguments.xml.empty() ? Topology::discover()
                                                      : Topology::from_xml(arguments.xml));
  if (!arguments.cpus.empty()) {
    if (auto left = topology.allow_only(arguments.cpus); !left) {
      throw Exit(ExitCode::kFailed,
                 fmt::format("{}: {}", name_of(left.error().code), left.error().message));
    }
  }
  auto offers = offers_of(topology, arguments);
  auto devices = value_or_exit(pair_devices(topology, offers, gpus_of(topology, arguments)));
  auto cores = plan_cores(topology, devices);
  if (globals.json) return print_json(json_of(offers, devices, cores).dump());
  std::cout << print_topology(topology, offers, devices, cores);
}

}  // namespace

void add_topology(CLI::App& app, Globals& globals) {
  auto arguments = std::make_shared<TopologyArguments>();
  auto* topology =
      app.add_subcommand("topology",
                         "The machine, and which cards would serve which device; asks no service "
                         "but with --paths");
  topology->add_option("--xml", arguments->xml, "A machine saved with: lstopo FILE.xml");
  topology->add_option("--provider", arguments->provider, "tcp, shm, verbs or efa")
      ->default_val("tcp");
  topology->add_option("--gpus", arguments->gpus, "Only these, by PCI bus id, or none")
      ->delimiter(',');
  topology->add_option("--cpus", arguments->cpus, "Only these hardware threads: 0,1,2")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  topology->add_flag("--paths", arguments->paths,
                     "Which way pages take from and to memory of the host and of GPUs, as the "
                     "running service answers");
  topology->footer(
      "Examples: penstock topology --xml p5.xml --provider efa\n"
      "          penstock topology --xml p5.xml --provider efa --gpus 53:00.0,97:00.0");
  topology->callback([&globals, arguments] { run(globals, *arguments); });
}

}  // namespace penstock::app
