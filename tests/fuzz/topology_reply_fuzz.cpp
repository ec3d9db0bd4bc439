// libFuzzer's way in: any text as what the process answers that reads a topology file apart, and
// all that is then made of it: cards, pairs, cores, the printed tree (tests/fuzz/CMakeLists.txt
// builds and runs it).
#include <cstdio>
#include <cstdlib>
#include <string>

#include "transport/topology/core_plan.hpp"
#include "transport/topology/hwloc_reader.hpp"
#include "transport/topology/pairing.hpp"
#include "transport/topology/print.hpp"

namespace {

using namespace penstock;

void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

void plan(const Topology& topology, const std::string& provider,
          const std::vector<std::string>& gpus) {
  const auto cards = cards_in_topology(topology, provider);
  const auto devices = pair_devices(topology, cards, gpus);
  if (!devices) return require(!devices.error().message.empty(), "refused without words");
  for (const DevicePlan& device : *devices) {
    require(!device.cards.empty(), "each device has a card");
    for (const PairedCard& card : device.cards)
      require(card.offer < cards.size(), "a card is one of those offered");
  }
  for (const std::size_t pollers : {0, 1}) {
    const CorePlan cores = plan_cores(topology, *devices, {pollers, true});
    for (std::size_t device = 0; device < devices->size(); ++device)
      require(cores.poller_of(device) < cores.pollers.size(), "each device is polled");
    require(print_topology(topology, cards, *devices, cores).ends_with('\n'), "a whole tree");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto topology = topology_of_reply(std::string(reinterpret_cast<const char*>(data), size));
  if (!topology) return 0;
  for (const char* provider : {"tcp", "efa", "shm"}) {
    plan(*topology, provider, {});
    for (const IoDevice& gpu : topology->gpus()) plan(*topology, provider, {gpu.bus});
  }
  if (topology->allow_only({0, 1})) plan(*topology, "tcp", {});
  return 0;
}
