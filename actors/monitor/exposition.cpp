#include "actors/monitor/exposition.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "actors/monitor/histogram.hpp"

namespace penstock {
namespace {

using nlohmann::json;
using prometheus::ClientMetric;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Families {
 public:
  void counter(const std::string& name, const std::string& help, Labels labels, double value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.counter.value = value;
    family(name, help, MetricType::Counter).metric.push_back(std::move(metric));
  }
  void gauge(const std::string& name, const std::string& help, Labels labels, double value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.gauge.value = value;
    family(name, help, MetricType::Gauge).metric.push_back(std::move(metric));
  }
  /// `from`: as Monitor::counts() has it.
  void histogram(const std::string& name, const std::string& help, Labels labels,
                 const json& from) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.histogram.sample_count = from.at("count").get<std::uint64_t>();
    metric.histogram.sample_sum = from.at("sum_s").get<double>();
    std::uint64_t so_far = 0;
    for (std::size_t i = 0; i < from.at("counts").size(); ++i) {
      so_far += from["counts"][i].get<std::uint64_t>();
      metric.histogram.bucket.push_back({so_far, i < Histogram::kBounds.size()
                                                     ? Histogram::kBounds.at(i)
                                                     : std::numeric_limits<double>::infinity()});
    }
    family(name, help, MetricType::Histogram).metric.push_back(std::move(metric));
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  prometheus::MetricFamily& family(const std::string& name, const std::string& help,
                                   MetricType type) {
    const auto [place, fresh] = places_.emplace(name, families_.size());
    if (fresh) families_.push_back({name, help, type, {}});
    return families_[place->second];
  }

  std::vector<prometheus::MetricFamily> families_;
  std::map<std::string, std::size_t> places_;
};

struct Listed {
  const char* key;
  const char* name;
  const char* help;
};

void list_counters(Families& to, const json& from, const Labels& labels,
                   std::span<const Listed> listed) {
  for (const auto& [key, name, help] : listed)
    to.counter(name, help, labels, from.at(key).get<double>());
}
void list_gauges(Families& to, const json& from, const Labels& labels,
                 std::span<const Listed> listed) {
  for (const auto& [key, name, help] : listed)
    to.gauge(name, help, labels, from.at(key).get<double>());
}

constexpr auto kCardCounters = std::to_array<Listed>({
    {"written_bytes", "penstock_card_written_bytes_total", "Bytes written to peers and confirmed"},
    {"read_bytes", "penstock_card_read_bytes_total", "Bytes read from peers"},
    {"operations", "penstock_card_operations_total", "Writes and reads that completed"},
    {"again", "penstock_card_again_total", "Times that the provider had no room (EAGAIN)"},
    {"failed", "penstock_card_failed_operations_total", "Operations and messages that failed"},
    {"link_failures", "penstock_card_link_failures_total", "Times that a link of the card failed"},
    {"failovers", "penstock_card_failovers_total",
     "Transfers that lost a way over the card and went on over others"},
    {"outages", "penstock_card_outages_total", "Times that the card went out"},
    {"reopened", "penstock_card_reopened_total",
     "Times that its outbound endpoint was closed by force and opened again"},
    {"credits_sent", "penstock_card_credits_sent_total", "Packed slots given back to senders"},
    {"credits_received", "penstock_card_credits_received_total", "Packed slots given back to us"},
    {"messages_sent", "penstock_card_messages_sent_total", "Metadata messages sent"},
    {"messages_received", "penstock_card_messages_received_total", "Metadata messages received"},
    {"stray_immediates", "penstock_card_stray_immediates_total",
     "Arrivals that nobody counted any more"},
});
constexpr auto kCardGauges = std::to_array<Listed>({
    {"posted_bytes", "penstock_card_posted_bytes", "Bytes that are out right now"},
    {"posted_operations", "penstock_card_posted_operations", "Operations that are out right now"},
    {"immediates_out", "penstock_card_immediate_credits_used",
     "Counted writes that are out right now (fabric.immediate_credits bounds them per link)"},
});
constexpr auto kDeviceGauges = std::to_array<Listed>({
    {"queued", "penstock_device_queued_transfers", "Accepted and waiting for their turn"},
    {"running", "penstock_device_running_transfers", "Under way, ours"},
    {"inbound", "penstock_device_inbound_transfers", "Under way, of other nodes"},
    {"staging_slots_lent", "penstock_device_staging_slots_lent", "Staging slots that peers hold"},
});
constexpr auto kDeviceCounters = std::to_array<Listed>({
    {"opens", "penstock_device_opens_total", "OPEN questions asked"},
    {"fences", "penstock_device_fences_total", "FENCE questions asked"},
    {"retries", "penstock_device_retries_total", "Times that a transfer went on after a failure"},
});
constexpr auto kPollerCounters = std::to_array<Listed>({
    {"busy_s", "penstock_poller_busy_seconds_total", "In rounds in which something happened"},
    {"asleep_s", "penstock_poller_asleep_seconds_total", "Waiting to be woken"},
    {"alive_s", "penstock_poller_alive_seconds_total", "Since the thread started"},
    {"cpu_s", "penstock_poller_cpu_seconds_total", "CPU time of the thread"},
});
constexpr auto kRequestCounters = std::to_array<Listed>({
    {"accepted", "penstock_requests_total", "Well-formed requests of clients"},
    {"malformed", "penstock_malformed_requests_total", "Requests that could not be read"},
    {"sent", "penstock_messages_to_clients_total", "Replies and events sent"},
    {"overflowed", "penstock_dropped_messages_to_clients_total",
     "Replies and events dropped since their client read too slowly"},
    {"refused", "penstock_requests_refused_total",
     "Strangers, connections and requests that were refused: above their role or their share"},
    {"by_ring", "penstock_ring_requests_total", "Requests that came by a shared-memory ring"},
    {"sent_by_ring", "penstock_ring_messages_to_clients_total",
     "Replies and events given to a shared-memory ring"},
});
constexpr auto kRequestGauges = std::to_array<Listed>({
    {"connections", "penstock_connections", "Connections to the request socket"},
    {"rings", "penstock_rings", "Shared-memory rings of clients that are open"},
});
constexpr std::array<const char*, 7> kMemberStates = {
    "connected", "connecting", "suspect", "draining", "left", "dead", "incompatible"};

void add_devices(Families& to, const json& status) {
  for (const json& device : status.at("devices")) {
    const std::string name = device.at("name").get<std::string>();
    list_gauges(to, device, {{"device", name}}, kDeviceGauges);
    list_counters(to, device, {{"device", name}}, kDeviceCounters);
    for (const json& card : device.at("cards")) {
      const Labels labels = {{"device", name}, {"card", card.at("name").get<std::string>()}};
      list_counters(to, card, labels, kCardCounters);
      list_gauges(to, card, labels, kCardGauges);
      to.gauge("penstock_card_up", "1 while the card is used", labels, card.at("up").get<bool>());
      // What the operating system says of virtual interfaces is no rate.
      to.gauge("penstock_card_link_bytes_per_second", "Its rate each way; 0: unknown", labels,
               card.at("link_gbps").get<double>() * 1e9 / 8);
    }
  }
  for (const json& poller : status.at("pollers"))
    list_counters(to, poller, {{"poller", poller.at("name").get<std::string>()}}, kPollerCounters);
  for (const json& memory : status.at("memory")) {
    const Labels labels = {{"device", memory.at("name").get<std::string>()},
                           {"memory", memory.at("memory").get<std::string>()}};
    to.gauge("penstock_regions", "Registered regions", labels, memory.at("regions").get<double>());
    to.gauge("penstock_region_bytes", "Bytes of them", labels, memory.at("bytes").get<double>());
  }
}

void add_transfers(Families& to, const json& status, const json& counts) {
  to.counter("penstock_transfers_accepted_total", "Transfers that the node accepted", {},
             status.at("transfers").at("accepted").get<double>());
  for (const json& ended : counts.at("ended"))
    to.counter("penstock_transfers_total", "Transfers that ended, by how",
               {{"state", ended.at("state").get<std::string>()},
                {"priority", ended.at("priority").get<std::string>()}},
               ended.at("count").get<double>());
  to.gauge("penstock_streams_open", "Streams that have not ended", {},
           status.at("streams").at("open").get<double>());
  for (const json& ended : counts.at("streams"))
    to.counter("penstock_streams_total", "Streams that ended, by how",
               {{"state", ended.at("state").get<std::string>()}}, ended.at("count").get<double>());
  for (const json& path : counts.at("paths")) {
    const Labels labels = {{"direction", path.at("direction").get<std::string>()},
                           {"path", path.at("path").get<std::string>()}};
    to.counter("penstock_transfer_bytes_total", "Bytes that ended transfers moved, by their way",
               labels, path.at("bytes").get<double>());
    to.counter("penstock_transfer_paths_total", "Transfers that ended, by their way", labels,
               path.at("count").get<double>());
  }
  for (const json& duration : counts.at("durations"))
    to.histogram("penstock_transfer_seconds",
                 "From the request's arrival until the client was told",
                 {{"priority", duration.at("priority").get<std::string>()}}, duration);
  for (const json& stage : counts.at("stages"))
    to.histogram("penstock_transfer_stage_seconds", "How long transfers were in each stage",
                 {{"stage", stage.at("stage").get<std::string>()}}, stage);
}

void add_members(Families& to, const json& nodes) {
  std::map<std::string, double> states;
  for (const char* state : kMemberStates) states[state] = 0;
  for (std::size_t i = 1; i < nodes.size(); ++i)  // the first is this node
    ++states[nodes[i].at("state").get<std::string>()];
  for (const auto& [state, count] : states)
    to.gauge("penstock_members", "Other members, by state", {{"state", state}}, count);
}

}  // namespace

std::string exposition(const json& everything, const json& process) {
  const json& status = everything.at("status");
  Families families;
  families.gauge("penstock_info", "Who this is",
                 {{"node", status.at("node").get<std::string>()},
                  {"provider", status.at("provider").get<std::string>()},
                  {"version", status.at("service_version").get<std::string>()}},
                 1);
  families.gauge("penstock_uptime_seconds", "Since the service started", {},
                 status.at("uptime_s").get<double>());
  families.gauge("penstock_draining", "1 while the node takes no new work", {},
                 status.at("draining").get<bool>());
  families.gauge("penstock_open_files", "Descriptors that the service has open", {},
                 process.at("open_files").get<double>());
  families.gauge("penstock_open_files_limit", "So many it may have open", {},
                 process.at("open_files_limit").get<double>());
  families.gauge("penstock_resident_bytes",
                 "Memory of the service, with its regions' touched pages", {},
                 process.at("resident_bytes").get<double>());
  add_devices(families, status);
  add_transfers(families, status, everything.at("counts"));
  add_members(families, everything.at("nodes"));
  list_counters(families, status.at("requests"), {}, kRequestCounters);
  list_gauges(families, status.at("requests"), {}, kRequestGauges);
  return families.text();
}

}  // namespace penstock
