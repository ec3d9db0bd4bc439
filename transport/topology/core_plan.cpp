#include "transport/topology/core_plan.hpp"

#include <algorithm>
#include <map>

#include "transport/topology/cpu_list.hpp"

namespace penstock {
namespace {

constexpr int kAnyNode = -1;

/// First hardware threads of the usable cores of a node (of all cores for kAnyNode), ascending.
std::vector<int> first_threads(const Topology& topology, int node) {
  std::vector<int> threads;
  for (const Core& core : topology.cores)
    if (node == kAnyNode || core.numa_node == node) threads.push_back(core.cpus.front());
  return threads;
}

std::vector<int> part_of(const std::vector<int>& threads, std::size_t i, std::size_t parts) {
  const std::size_t n = threads.size();
  const std::size_t begin = i * n / parts;
  const std::size_t end = std::max(begin + 1, (i + 1) * n / parts);
  return {threads.begin() + static_cast<std::ptrdiff_t>(begin),
          threads.begin() + static_cast<std::ptrdiff_t>(end)};
}

/// The buses among which the cores of a node are cut: those of all its GPUs while each can have a
/// core of its own, else those of the devices here. Host memory has the bus "".
std::vector<std::string> sharers(const Topology& topology, const std::vector<DevicePlan>& devices,
                                 const std::vector<std::size_t>& here, int node,
                                 std::size_t cores) {
  std::vector<std::string> local;
  for (std::size_t d : here) local.push_back(devices[d].bus);
  std::vector<std::string> all = local;
  for (const IoDevice& gpu : topology.gpus())
    if (gpu.numa_node == node) all.push_back(gpu.bus);
  for (auto* buses : {&local, &all}) {
    std::sort(buses->begin(), buses->end());
    buses->erase(std::unique(buses->begin(), buses->end()), buses->end());
  }
  const bool gpus_only = local.empty() || !local.front().empty();
  return gpus_only && all.size() <= cores ? all : local;
}

/// Adds the pollers of the devices whose cores are `threads`; devices with the same part share one.
void add_pollers(const Topology& topology, const std::vector<DevicePlan>& devices,
                 const std::vector<std::size_t>& here, int node, const std::vector<int>& threads,
                 CorePlan& plan) {
  const auto buses = sharers(topology, devices, here, node, threads.size());
  std::map<int, std::size_t> poller_on;
  for (std::size_t d : here) {
    const auto place = std::find(buses.begin(), buses.end(), devices[d].bus) - buses.begin();
    auto share = part_of(threads, static_cast<std::size_t>(place), buses.size());
    const auto [known, fresh] = poller_on.try_emplace(share.front(), plan.pollers.size());
    if (fresh) plan.pollers.push_back({share.front(), std::move(share), {}});
    plan.pollers[known->second].devices.push_back(d);
  }
  if (poller_on.size() < here.size())
    plan.warnings.push_back(
        fmt::format("{} devices {}share {} poller{}: there are no more cores for them than {}",
                    here.size(), node == kAnyNode ? "" : fmt::format("of NUMA node {} ", node),
                    poller_on.size(), poller_on.size() == 1 ? "" : "s", format_cpus(threads)));
}

/// The cores for devices of `node`, kAnyNode's when it has none or is unknown.
std::map<int, std::vector<std::size_t>> devices_by_pool(const Topology& topology,
                                                        const std::vector<DevicePlan>& devices,
                                                        std::vector<std::string>& warnings) {
  std::map<int, std::vector<std::size_t>> pools;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    int node = devices[d].numa_node;
    if (node >= 0 && first_threads(topology, node).empty()) {
      warnings.push_back(fmt::format(
          "{} is on NUMA node {}, where this process may use no core: polled from another node",
          devices[d].name, node));
      node = kAnyNode;
    }
    pools[std::max(node, kAnyNode)].push_back(d);
  }
  return pools;
}

/// Threads that no poller has taken; all of `threads` when each is taken.
std::vector<int> free_of(const std::vector<int>& threads, const CorePlan& plan) {
  std::vector<int> left = threads;
  std::erase_if(left, [&](int cpu) {
    return std::any_of(plan.pollers.begin(), plan.pollers.end(),
                       [&](const PollerPlan& poller) { return poller.cpu == cpu; });
  });
  return left.empty() ? threads : left;
}

/// Merges neighbours until there are at most `count` pollers; each keeps its first core.
void limit_pollers(std::size_t count, CorePlan& plan) {
  const std::size_t n = plan.pollers.size();
  if (count >= n) {
    if (count > n)
      plan.warnings.push_back(
          fmt::format("{} pollers asked for, {} are of use here: {} run", count, n, n));
    return;
  }
  std::vector<PollerPlan> merged(count);
  for (std::size_t i = 0; i < n; ++i) {
    PollerPlan& into = merged[i * count / n];
    PollerPlan& from = plan.pollers[i];
    if (into.devices.empty()) into.cpu = from.cpu;
    into.share.insert(into.share.end(), from.share.begin(), from.share.end());
    into.devices.insert(into.devices.end(), from.devices.begin(), from.devices.end());
  }
  plan.pollers = std::move(merged);
}

/// Two pools may end on one core: the pollers there become one.
void join_pollers_on_one_core(CorePlan& plan) {
  std::vector<PollerPlan> joined;
  for (PollerPlan& poller : plan.pollers) {
    const auto same = std::find_if(joined.begin(), joined.end(), [&](const PollerPlan& other) {
      return other.cpu == poller.cpu;
    });
    if (same == joined.end())
      joined.push_back(std::move(poller));
    else
      same->devices.insert(same->devices.end(), poller.devices.begin(), poller.devices.end());
  }
  plan.pollers = std::move(joined);
}

}  // namespace

std::size_t CorePlan::poller_of(std::size_t device) const {
  const auto polls = [&](const PollerPlan& poller) {
    return std::find(poller.devices.begin(), poller.devices.end(), device) != poller.devices.end();
  };
  return static_cast<std::size_t>(std::find_if(pollers.begin(), pollers.end(), polls) -
                                  pollers.begin());
}

CorePlan plan_cores(const Topology& topology, const std::vector<DevicePlan>& devices,
                    const CorePlanOptions& options) {
  CorePlan plan;
  const auto pools = devices_by_pool(topology, devices, plan.warnings);
  // Devices with a node first: the others take what is left.
  for (auto pool = pools.rbegin(); pool != pools.rend(); ++pool) {
    const auto& [node, here] = *pool;
    auto threads = first_threads(topology, node);
    if (node == kAnyNode) threads = free_of(threads, plan);
    add_pollers(topology, devices, here, node, threads, plan);
  }
  join_pollers_on_one_core(plan);
  std::sort(plan.pollers.begin(), plan.pollers.end(), [](const PollerPlan& a, const PollerPlan& b) {
    return a.devices.front() < b.devices.front();
  });
  if (options.pollers > 0) limit_pollers(options.pollers, plan);
  if (topology.cores.size() == 1)
    plan.warnings.push_back(
        fmt::format("only one core may be used (CPU {}): pollers share it with all other threads",
                    format_cpus(topology.cores.front().cpus)));
  if (!options.pin)
    for (PollerPlan& poller : plan.pollers) poller.cpu = -1;
  return plan;
}

}  // namespace penstock
