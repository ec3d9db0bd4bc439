#include "actors/node/status_report.hpp"

namespace penstock {
namespace {

nlohmann::json card_report(const LocalDevice& device, std::size_t card, const NicHealth& health) {
  const CardCounters& counters = device.poller->counters(card);
  const NicInfo& info = device.poller->nic(card).info();
  return {{"name", device.card_names[card]},
          {"provider", info.provider},
          {"up", health.up},
          {"outages", health.outages},
          {"last_error", health.last_error},
          {"link_gbps", info.link_gbps},
          {"written_bytes", counters.written_bytes.load()},
          {"read_bytes", counters.read_bytes.load()},
          {"operations", counters.operations.load()},
          {"again", counters.again.load()},
          {"failed", counters.failed.load()},
          {"messages_sent", counters.messages_sent.load()},
          {"messages_received", counters.messages_received.load()}};
}

/// How other nodes reach memory of the device's GPU: by a card of its, or by staging slots.
const char* gpu_reach(const LocalDevice& device) {
  if (device.gpu < 0) return "none";
  for (std::size_t i = 0; i < device.poller->nic_count(); ++i)
    if (device.poller->nic(i).info().gpu_memory) return "gpudirect";
  return device.staging ? "staged" : "none";
}

}  // namespace

nlohmann::json device_report(const std::vector<std::shared_ptr<LocalDevice>>& devices,
                             const Gathered& gathered) {
  nlohmann::json list = nlohmann::json::array();
  std::size_t queued = 0;
  std::size_t running = 0;
  std::size_t inbound = 0;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    nlohmann::json cards = nlohmann::json::array();
    for (std::size_t n = 0; n < devices[d]->card_names.size(); ++n)
      cards.push_back(card_report(*devices[d], n, gathered.nics.at(d).at(n)));
    list.push_back(
        {{"name", devices[d]->name},
         {"numa_node", devices[d]->numa_node},
         {"gpu", devices[d]->gpu},
         {"gpu_reach", gpu_reach(*devices[d])},
         {"staging", devices[d]->staging != nullptr},
         {"poller_cpu_s", std::chrono::duration<double>(devices[d]->poller->cpu_time()).count()},
         {"cards", std::move(cards)}});
    for (const auto& transfer : gathered.devices.at(d).outbound)
      ++(transfer.state == Outbound::State::kQueued ? queued : running);
    inbound += gathered.devices.at(d).inbound;
  }
  return {{"devices", std::move(list)},
          {"transfers", {{"queued", queued}, {"running", running}, {"inbound", inbound}}}};
}

std::map<TransferId, nlohmann::json> states_of(const Gathered& gathered) {
  std::map<TransferId, nlohmann::json> states;
  for (const auto& device : gathered.devices)
    for (const auto& transfer : device.outbound)
      states[transfer.id] = {{"id", transfer.id},
                             {"state", name_of(transfer.state)},
                             {"bytes", transfer.bytes},
                             {"total_bytes", transfer.total_bytes}};
  return states;
}

}  // namespace penstock
