#include "apps/penstock/ladder_steps.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "actors/settings/settings.hpp"
#include "transport/fabric/interfaces.hpp"
#include "transport/topology/topology.hpp"

namespace penstock::app {
namespace {

/// The first cores for one service, the others for the other: two pollers on one core would wait
/// for each other.
std::vector<std::vector<std::string>> a_core_each(const std::vector<int>& cpus) {
  if (cpus.size() < 2) return {};
  return {{fmt::format("devices.cpus=[{}]", cpus[0])}, {fmt::format("devices.cpus=[{}]", cpus[1])}};
}

/// The first hardware thread of each core that this process may use.
std::vector<int> core_cpus() {
  std::vector<int> cpus;
  auto topology = Topology::discover();
  if (!topology) return cpus;
  for (const auto& core : topology->cores) cpus.push_back(core.cpus.front());
  return cpus;
}

/// A card is an interface. Of this one other machines know nothing, as of lo: no keys are needed.
std::optional<InterfaceAddress> second_card() {
  for (auto& each : interface_addresses())
    if (each.up && !each.loopback && each.address.starts_with("127.")) return each;
  return std::nullopt;
}

LadderStep more_cards(const std::string& provider) {
  LadderStep step{.name = "more cards", .change = "a second card on each side", .settings = {}};
  if (const auto second = second_card(); provider != "tcp")
    step.skipped = "only tcp has a second card that reaches the own machine";
  else if (!second)
    step.skipped =
        "no interface but lo has an address of this machine alone; as root: ip link add card1 type "
        "veth peer card1b; ip addr add 127.0.0.2/32 dev card1; ip link set card1 up; "
        "ip link set card1b up";
  else
    step.settings.push_back(
        fmt::format("fabric.cards=[{{domain: lo, address: 127.0.0.1}}, "
                    "{{domain: {}, address: '{}'}}]",
                    second->name, second->address));
  return step;
}

std::vector<LadderStep> table(const std::string& provider) {
  const auto cpus = core_cpus();
  std::vector<LadderStep> steps{
      {.name = "direct posting",
       .change = "one write at a time, told of before the next is asked for",
       .settings = {"fabric.window_operations=1", "fabric.link_window_operations=1",
                    "fabric.window_bytes=1MiB", "fabric.link_window_bytes=1MiB",
                    "fabric.quantum_bytes=1MiB", "fabric.merge=false", "fabric.packing=never",
                    "fabric.warm_up=false", "fabric.spin_us=0", "devices.pin=false",
                    "memory.huge_pages=never"}},
      {.name = "operation queue",
       .change = "16 writes posted at once",
       .settings = {"fabric.window_operations=16", "fabric.link_window_operations=16"}},
      {.name = "batches",
       .change = "the poller is given 8 MiB at a time",
       .settings = {"fabric.quantum_bytes=8MiB"}},
      {.name = "lazy posting",
       .change = "as much as the card takes: 256 writes or 16 MiB",
       .settings = {"fabric.window_operations=256", "fabric.link_window_operations=256",
                    "fabric.window_bytes=16MiB", "fabric.link_window_bytes=16MiB"}},
      {.name = "spinning",
       .change = "an idle poller looks for 50 us before it sleeps",
       .settings = {"fabric.spin_us=50"}},
      {.name = "warm-up",
       .change = "every path is used once before the first transfer",
       .settings = {"fabric.warm_up=true"}},
      {.name = "pinning",
       .change = "each poller on a core of its own",
       .settings = {"devices.pin=true"},
       .by_node = a_core_each(cpus)},
      {.name = "huge pages",
       .change = "reserved or transparent ones, where there are any",
       .settings = {"memory.huge_pages=auto"}},
      more_cards(provider),
      {.name = "packing",
       .change = "small pages are gathered, sent as few large writes and scattered",
       .settings = {"fabric.packing=auto", "fabric.merge=true"}},
  };
  for (auto& step : steps) {
    if (step.name == "pinning" && cpus.size() < 2) step.skipped = "only one core may be used";
  }
  return steps;
}

bool is_known(const std::string& setting) {
  static const auto keys = setting_keys();
  return std::ranges::find(keys, setting.substr(0, setting.find('='))) != keys.end();
}

}  // namespace

std::vector<LadderStep> ladder_steps(const std::string& provider) {
  auto steps = table(provider);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    auto& step = steps[i];
    auto unknown = std::ranges::find_if_not(step.settings, is_known);
    // The first step only switches off: what is not there is off.
    if (i > 0 && !step.skipped && unknown != step.settings.end()) {
      step.skipped = fmt::format("this service has no {}", unknown->substr(0, unknown->find('=')));
    }
    std::erase_if(step.settings, [](const auto& setting) { return !is_known(setting); });
  }
  return steps;
}

}  // namespace penstock::app
