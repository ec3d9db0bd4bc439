#include "apps/penstock/submit_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/penstock/globals.hpp"
#include "client/workload/measurement.hpp"

namespace penstock::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBytes = 4096;
constexpr std::uint64_t kPages = 64;
constexpr std::uint32_t kSpinUs = 5000;
constexpr std::size_t kTogether = 32;  // asked for before their ends are waited for
constexpr std::size_t kTraced = 500;
constexpr const char* kRegion = "submit";
constexpr auto kRingPatience = std::chrono::seconds(5);

struct Way {
  const char* name;
  bool ring;
  std::uint32_t spin_us;
};
constexpr Way kWays[] = {{"zmq", false, 0}, {"ring", true, kSpinUs}, {"ring_asleep", true, 0}};

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// A ring comes a moment after its client.
void await_ring(const client::Client& client) {
  const auto end = Clock::now() + kRingPatience;
  while (!client.has_ring()) {
    if (Clock::now() > end)
      throw Exit(ExitCode::kFailed, "the service gives no ring; see request.rings");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Asks for a page after the other.
class Asker {
 public:
  Asker(const LocalCluster& cluster, client::Client& client)
      : client_(client), target_{cluster.name(1), kRegion} {}

  client::Transfer ask() {
    const std::uint32_t page = next_++ % kPages;
    client::TransferSpec spec{.region = kRegion, .targets = {target_}};
    spec.layout = client::Pages{
        .page_bytes = kBytes, .source_pages = {&page, 1}, .destination_pages = {&page, 1}};
    spec.lane = client::Lane::kUrgent;
    return client_.transfer(spec);
  }

 private:
  client::Client& client_;
  const client::Target target_;
  std::uint32_t next_ = 0;
};

void check(const client::TransferResult& result) {
  if (!result.done())
    throw Exit(ExitCode::kFailed, "a small transfer ended as " + result.error_message);
}

/// Of the newest of them, of which the service still has traces.
std::vector<std::pair<std::string, double>> stages_of(client::Client& client,
                                                      const std::vector<std::uint64_t>& ids) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<double>> took_us;
  for (std::size_t i = ids.size() - std::min(ids.size(), kTraced); i < ids.size(); ++i)
    for (const auto& stage : client.trace(ids[i]).stages) {
      auto& all = took_us[stage.name];
      if (all.empty()) order.push_back(stage.name);
      all.push_back(static_cast<double>(stage.took_ns) / 1000);
    }
  std::vector<std::pair<std::string, double>> stages;
  for (const std::string& name : order)
    stages.emplace_back(name, workload::latency_of(std::move(took_us[name])).p50);
  return stages;
}

SubmitRow row(const LocalCluster& cluster, const std::string& endpoint, const Way& way,
              std::size_t rounds) {
  client::Client client(
      {.endpoint = endpoint, .client = "penstock bench", .ring = way.ring, .spin_us = way.spin_us});
  if (way.ring) await_ring(client);
  Asker asker(cluster, client);
  const std::size_t warm_up = rounds / 10 + 1;
  std::vector<double> accepted;
  std::vector<client::Transfer> transfers;
  for (std::size_t i = 0; i < warm_up + rounds; ++i) {
    const auto start = Clock::now();
    transfers.push_back(asker.ask());
    if (i >= warm_up) accepted.push_back(us_since(start));
    if (transfers.size() < kTogether) continue;
    for (const auto& result : client::wait_all(transfers)) check(result);
    transfers.clear();
  }
  for (const auto& result : client::wait_all(transfers)) check(result);
  std::vector<double> alone;
  std::vector<double> done;
  std::vector<std::uint64_t> ids;
  for (std::size_t i = 0; i < warm_up + rounds; ++i) {
    const auto start = Clock::now();
    const auto transfer = asker.ask();
    const double accepted_us = us_since(start);
    check(transfer.wait());
    if (i < warm_up) continue;
    done.push_back(us_since(start));
    alone.push_back(accepted_us);
    ids.push_back(transfer.id());
  }
  return {way.name, workload::latency_of(std::move(accepted)),
          workload::latency_of(std::move(alone)), workload::latency_of(std::move(done)),
          stages_of(client, ids)};
}

}  // namespace

SubmitReport bench_submit(LocalCluster& cluster, std::size_t rounds) {
  SubmitReport report;
  if (rounds == 0) return report;
  const auto source =
      cluster.client(0).allocate(kRegion, kPages * kBytes, "", client::MapMemory::kNo);
  const auto destination =
      cluster.client(1).allocate(kRegion, kPages * kBytes, "", client::MapMemory::kNo);
  for (const Way& way : kWays)
    report.push_back(row(cluster, cluster.client(0).options().endpoint, way, rounds));
  return report;
}

void print_submit(const SubmitReport& report) {
  if (report.empty()) return;
  fmt::print("\nan urgent 4 KiB transfer by one client, us:\n");
  for (const SubmitRow& row : report) {
    fmt::print(
        "  {:<12} accepted p50 {:.1f}, p99 {:.1f} (alone p50 {:.1f}); done p50 {:.0f}, p99 "
        "{:.0f}\n",
        row.way, row.accepted.p50, row.accepted.p99, row.accepted_alone.p50, row.done.p50,
        row.done.p99);
    fmt::print("  {:<12} of it in the service:", "");
    for (const auto& [stage, us] : row.stages) fmt::print(" {} {:.1f}", stage, us);
    fmt::print("\n");
  }
}

nlohmann::json to_json(const SubmitReport& report) {
  nlohmann::json json = nlohmann::json::object();
  for (const SubmitRow& row : report) {
    json[row.way] = {{"accepted", workload::to_json_us(row.accepted)},
                     {"accepted_alone", workload::to_json_us(row.accepted_alone)},
                     {"done", workload::to_json_us(row.done)}};
    for (const auto& [stage, us] : row.stages) json[row.way]["stages_p50_us"][stage] = us;
  }
  return json;
}

}  // namespace penstock::app
