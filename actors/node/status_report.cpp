#include "actors/node/status_report.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr std::size_t kWatchedUnderWay = 100;
constexpr std::size_t kWatchedEnded = 20;
constexpr std::size_t kWatchedStreams = 20;
constexpr std::size_t kWatchedElsewhere = 20;

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

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
          {"link_failures", counters.link_failures.load()},
          {"failovers", counters.failovers.load()},
          {"reopened", counters.reopened.load()},
          {"posted_bytes", counters.posted_bytes.load()},
          {"posted_operations", counters.posted_operations.load()},
          {"immediates_out", counters.immediates_out.load()},
          {"credits_sent", counters.credits_sent.load()},
          {"credits_received", counters.credits_received.load()},
          {"stray_immediates", counters.stray_immediates.load()},
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

nlohmann::json device_report(const LocalDevice& device, const DeviceSnapshot& snapshot,
                             const std::vector<NicHealth>& nics) {
  nlohmann::json cards = nlohmann::json::array();
  for (std::size_t n = 0; n < device.card_names.size(); ++n)
    cards.push_back(card_report(device, n, nics.at(n)));
  std::size_t queued = 0;
  for (const auto& transfer : snapshot.outbound)
    queued += transfer.state == Outbound::State::kQueued;
  return {{"name", device.name},
          {"numa_node", device.numa_node},
          {"gpu", device.gpu},
          {"gpu_reach", gpu_reach(device)},
          {"staging", device.staging != nullptr},
          {"staging_slots_lent", snapshot.staging_slots_lent},
          {"poller", device.poller->usage().thread},
          {"poller_cpu_s", seconds(device.poller->cpu_time())},
          {"queued", queued},
          {"running", snapshot.outbound.size() - queued},
          {"inbound", snapshot.inbound},
          {"opens", snapshot.counters.opens},
          {"fences", snapshot.counters.fences},
          {"retries", snapshot.counters.retries},
          {"cards", std::move(cards)}};
}

nlohmann::json poller_report(const std::vector<std::shared_ptr<LocalDevice>>& devices) {
  std::map<std::string, PollerUsage> threads;  // devices may share one
  for (const auto& device : devices) {
    PollerUsage usage = device->poller->usage();
    threads.insert_or_assign(usage.thread, usage);
  }
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [name, usage] : threads)
    list.push_back({{"name", name},
                    {"busy_s", seconds(usage.busy)},
                    {"asleep_s", seconds(usage.asleep)},
                    {"alive_s", seconds(usage.alive)},
                    {"cpu_s", seconds(usage.cpu)}});
  return list;
}

nlohmann::json memory_report(const RegionTable& regions) {
  std::map<std::pair<std::string, std::string>, std::pair<std::uint64_t, std::uint64_t>> sums;
  for (const auto& region : regions.list()) {
    auto& [count, bytes] = sums[{region->device, region->on_gpu() ? "cuda" : "host"}];
    ++count;
    bytes += region->bytes;
  }
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [where, sum] : sums)
    list.push_back({{"name", where.first},
                    {"memory", where.second},
                    {"regions", sum.first},
                    {"bytes", sum.second}});
  return list;
}

nlohmann::json to_json(const Outbound::Snapshot& transfer, TimePoint now) {
  nlohmann::json report = {
      {"id", transfer.id},
      {"state", name_of(transfer.state)},
      {"node", transfer.node},
      {"region", transfer.region},
      {"remote_region", transfer.remote_region},
      {"direction", transfer.direction == Direction::kWrite ? "write" : "read"},
      {"lane", transfer.lane == Lane::kBulk ? "bulk" : "urgent"},
      {"bytes", transfer.bytes},
      {"total_bytes", transfer.total_bytes},
      {"elapsed_us",
       std::chrono::duration_cast<std::chrono::microseconds>(now - transfer.started).count()}};
  if (transfer.stream == 0) return report;
  report["stream"] = transfer.stream;
  report["part"] = transfer.part;
  return report;
}

nlohmann::json to_json(const Shadows::Elsewhere& shadow, TimePoint now) {
  nlohmann::json report = to_json(shadow.snapshot, now);
  report["on"] = shadow.on;
  if (shadow.on_as != 0) report["on_as"] = shadow.on_as;
  return report;
}

/// As the transfers reply has it.
nlohmann::json ended_report(const TransferResult& result) {
  auto shown = nlohmann::json::from_msgpack(transfer_event(result, 0));
  for (const char* key : {"v", "event", "seq"}) shown.erase(key);
  return shown;
}

}  // namespace

nlohmann::json status_report(const NodeFacts& facts, const Gathered& gathered) {
  const NodeActorSetup& setup = facts.setup;
  nlohmann::json devices = nlohmann::json::array();
  std::size_t queued = 0;
  std::size_t running = 0;
  std::size_t inbound = 0;
  for (std::size_t d = 0; d < setup.devices.size(); ++d) {
    devices.push_back(
        device_report(*setup.devices[d], gathered.devices.at(d), gathered.nics.at(d)));
    queued += devices.back()["queued"].get<std::size_t>();
    running += devices.back()["running"].get<std::size_t>();
    inbound += gathered.devices.at(d).inbound;
  }
  const Gateway::Counters requests = setup.requests ? setup.requests() : Gateway::Counters{};
  return {
      {"node", setup.node},
      {"incarnation", setup.incarnation},
      {"service_version", setup.service_version},
      {"provider", setup.provider},
      {"draining", facts.draining},
      {"uptime_s",
       std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - facts.started).count()},
      {"subscribers", facts.subscribers},
      {"metrics", setup.watched_at ? setup.watched_at() : ""},
      {"devices", std::move(devices)},
      {"pollers", poller_report(setup.devices)},
      {"memory", memory_report(*setup.regions)},
      {"recent_errors", facts.monitor.troubles()},
      {"streams", {{"open", facts.streams}}},
      {"requests",
       {{"accepted", requests.requests},
        {"malformed", requests.malformed},
        {"sent", requests.sent},
        {"overflowed", requests.overflowed},
        {"refused", requests.refused},
        {"connections", requests.connections},
        {"rings", requests.rings},
        {"by_ring", requests.ring_requests},
        {"sent_by_ring", requests.ring_sent}}},
      {"transfers",
       {{"queued", queued},
        {"running", running},
        {"inbound", inbound},
        {"elsewhere", facts.elsewhere},
        {"for_others", facts.for_others},
        {"accepted", facts.totals.accepted},
        {"done", facts.totals.done},
        {"failed", facts.totals.failed},
        {"cancelled", facts.totals.cancelled},
        {"expired", facts.totals.expired}}},
  };
}

nlohmann::json transfers_report(const Ledger& ledger, const Streams& streams,
                                const Shadows& shadows, const std::vector<TransferId>& ids,
                                const Gathered& gathered) {
  std::map<TransferId, const Outbound::Snapshot*> running;
  std::map<TransferId, std::uint64_t> moving;  // bytes, by stream
  for (const auto& device : gathered.devices)
    for (const auto& transfer : device.outbound) {
      running[transfer.id] = &transfer;
      if (transfer.stream != 0) moving[transfer.stream] += transfer.bytes;
    }
  std::map<TransferId, Shadows::Elsewhere> elsewhere;
  for (auto& shadow : shadows.snapshot()) elsewhere.emplace(shadow.snapshot.id, std::move(shadow));
  const TimePoint now = Clock::now();
  nlohmann::json transfers = nlohmann::json::array();
  for (TransferId id : ids) {
    const auto* entry = ledger.find(id);
    const auto found = running.find(id);
    if (!entry)
      transfers.push_back({{"id", id}, {"state", "unknown"}});
    else if (entry->result)
      transfers.push_back(ended_report(*entry->result));
    else if (found != running.end())
      transfers.push_back(to_json(*found->second, now));
    else if (const auto shadow = elsewhere.find(id); shadow != elsewhere.end())
      transfers.push_back(to_json(shadow->second, now));
    else if (auto stream = streams.report(id, moving[id], now); !stream.is_null())
      transfers.push_back(std::move(stream));
    else if (entry->device == Ledger::kElsewhere)  // its event waits until our pages are quiet
      transfers.push_back({{"id", id}, {"state", "ending"}});
    else
      transfers.push_back({{"id", id}, {"state", "queued"}});
  }
  return transfers;
}

nlohmann::json watched_transfers(const Ledger& ledger, const Streams& streams,
                                 const Shadows& shadows, const Gathered& gathered) {
  std::vector<const Outbound::Snapshot*> under_way;
  for (const auto& device : gathered.devices)
    for (const auto& transfer : device.outbound) under_way.push_back(&transfer);
  const std::size_t shown = std::min(under_way.size(), kWatchedUnderWay);
  std::partial_sort(under_way.begin(), under_way.begin() + static_cast<std::ptrdiff_t>(shown),
                    under_way.end(), [](auto* a, auto* b) {
                      // Those that move first, among them the oldest.
                      const bool a_waits = a->state == Outbound::State::kQueued;
                      const bool b_waits = b->state == Outbound::State::kQueued;
                      return a_waits != b_waits ? b_waits : a->id < b->id;
                    });
  const TimePoint now = Clock::now();
  nlohmann::json transfers =
      transfers_report(ledger, streams, shadows, streams.newest(kWatchedStreams), gathered);
  const auto elsewhere = shadows.snapshot();
  for (std::size_t i = 0; i < std::min(elsewhere.size(), kWatchedElsewhere); ++i)
    transfers.push_back(to_json(elsewhere[i], now));
  for (std::size_t i = 0; i < shown; ++i) transfers.push_back(to_json(*under_way[i], now));
  for (TransferId id : ledger.newest_ended(kWatchedEnded)) {
    transfers.push_back(ended_report(*ledger.find(id)->result));
    transfers.back().erase("landed");  // no JSON text
  }
  return transfers;
}

DelegatedSeen delegated_report(Delegations& delegations, const NodeAsked& asked,
                               const LookAtDelegated& look, const Gathered& gathered) {
  std::map<TransferId, const Outbound::Snapshot*> running;
  for (const auto& device : gathered.devices)
    for (const auto& transfer : device.outbound) running[transfer.id] = &transfer;
  DelegatedSeen seen;
  for (const TransferId id : look.transfers) {
    const auto place = delegations.place_of(asked.node, asked.peer, id, Clock::now());
    auto& told = seen.transfers.emplace_back();
    const auto found = running.find(place.running);
    if (place.running == 0)
      told.state = place.state;
    else if (found == running.end())
      told.state = "queued";
    else
      told = {std::string(name_of(found->second->state)), found->second->bytes,
              found->second->total_bytes};
  }
  return seen;
}

nlohmann::json unfinished_report(const TransferResult& result, std::string_view state) {
  return trace_report(result, state, Clock::now(), std::chrono::system_clock::now());
}

Error no_trace(TransferId transfer, std::size_t kept) {
  return {ErrorCode::kNotFound,
          fmt::format("no trace of transfer {}: unknown, or ended before the last {} "
                      "(metrics.traces_kept)",
                      transfer, kept)};
}

}  // namespace penstock
