#include "apps/penstock/gpu_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/penstock/globals.hpp"
#include "apps/penstock/local_cluster.hpp"
#include "apps/penstock/page_mover.hpp"
#include "apps/penstock/table.hpp"
#include "client/cli/quantity.hpp"
#include "client/workload/measurement.hpp"

namespace penstock::app {
namespace {

using client::Direction;

constexpr std::uint64_t kSmallBytes = 4096;
constexpr std::size_t kSmallWarmUp = 20;

/// One way from one kind of memory to another.
struct Way {
  std::string name;
  std::size_t from;  // services
  std::size_t to;
  Memory source;
  Memory destination;
  std::string path;  // asked for
  client::Packing packing = client::Packing::kAuto;
  std::size_t in_flight = 1;
};

struct Row {
  std::string way;
  std::uint64_t page_bytes = 0;
  std::string taken;  // the path that the results say
  std::vector<double> gigabytes_per_s;
  std::vector<double> service_us;  // of each request, from its acceptance to its end
  bool verified = true;
  std::string error;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::vector<Way> ways_of(const GpuBenchOptions& options) {
  const auto host = Memory::kHost;
  const auto cuda = Memory::kCuda;
  return {
      {"GPU to GPU, one node", 0, 0, cuda, cuda, "", client::Packing::kAuto, options.in_flight},
      {"GPU to GPU, one node, one request", 0, 0, cuda, cuda, ""},
      {"host to GPU, one node", 0, 0, host, cuda, ""},
      {"GPU to host, one node", 0, 0, cuda, host, ""},
      {"GPU to GPU, staged", 0, 1, cuda, cuda, "staged"},
      {"GPU to GPU, gpudirect", 0, 1, cuda, cuda, "gpudirect"},
      {"GPU to host, auto", 0, 1, cuda, host, "auto"},
      {"host to GPU, auto", 0, 1, host, cuda, "auto"},
      {"host to host, auto", 0, 1, host, host, "auto"},
      {"host to host, not packed", 0, 1, host, host, "", client::Packing::kNever},
  };
}

class GpuBench {
 public:
  GpuBench(const GpuBenchOptions& options, LocalCluster& cluster)
      : options_(options), cluster_(cluster) {}

  std::vector<Row> measure(const Way& way) {
    std::vector<Row> rows;
    try {
      PageMover mover(cluster_.client(way.from), cluster_.client(way.to), "bench",
                      options_.region_bytes, 1, way.source, way.destination);
      mover.set_path(way.path);
      mover.set_packing(way.packing);
      for (const auto page_bytes : options_.page_bytes) rows.push_back(row(way, mover, page_bytes));
    } catch (const client::Error& error) {
      rows.push_back({way.name, 0, "", {}, {}, true, error.what()});
    }
    return rows;
  }

  /// Asked to told, of one page between two regions of the GPU on one node.
  workload::Latency small() {
    PageMover mover(cluster_.client(0), cluster_.client(0), "small", options_.region_bytes, 1,
                    Memory::kCuda, Memory::kCuda);
    const auto pages = static_cast<std::uint32_t>(options_.region_bytes / kSmallBytes);
    std::vector<double> us;
    for (std::size_t i = 0; i < kSmallWarmUp + options_.small_rounds; ++i) {
      const auto page = static_cast<std::uint32_t>(i) % pages;
      const auto moved = wait(mover.submit(Direction::kWrite, kSmallBytes, {{page}, {page}}));
      if (i >= kSmallWarmUp) us.push_back(moved.seconds() * 1e6);
    }
    return workload::latency_of(std::move(us));
  }

 private:
  Row row(const Way& way, PageMover& mover, std::uint64_t page_bytes) {
    Row row{way.name, page_bytes, "", {}, {}, true, ""};
    try {
      for (std::size_t round = 0; round <= options_.rounds; ++round) move(way, mover, round, row);
    } catch (const Exit& exit) {
      if (interrupted()) throw;
      row.error = exit.what();
    }
    return row;
  }

  void move(const Way& way, PageMover& mover, std::size_t round, Row& row) {
    const auto lists = random_pages(options_.region_bytes / row.page_bytes,
                                    options_.round_bytes / row.page_bytes, ++seed_);
    std::vector<Batch> batches;
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < way.in_flight; ++i)
      batches.push_back(mover.submit(Direction::kWrite, row.page_bytes, lists));
    std::uint64_t bytes = 0;
    auto end = begin;
    for (const Batch& batch : batches) {
      const auto moved = wait(batch, [this] { cluster_.check(); });
      bytes += moved.bytes();
      if (round > 0)
        row.service_us.push_back(static_cast<double>(moved.results.front().elapsed_us));
      end = std::max(end, moved.end);
      row.taken = moved.results.front().path;
    }
    const std::chrono::duration<double> took = end - begin;
    if (round > 0) row.gigabytes_per_s.push_back(static_cast<double>(bytes) * 1e-9 / took.count());
    if (round == 0 || round == options_.rounds)
      row.verified = mover.verify(row.page_bytes, lists).empty() && row.verified;
  }

  const GpuBenchOptions& options_;
  LocalCluster& cluster_;
  std::uint64_t seed_ = 0;
};

void print(const std::vector<Row>& rows, const workload::Latency& small) {
  Table table({"way", "page", "path", "GB/s", "min", "max", "verified"});
  for (const Row& row : rows) {
    if (!row.error.empty()) {
      table.add({row.way, row.page_bytes ? cli::format_bytes(row.page_bytes) : "", "-", "-", "", "",
                 "not run: " + row.error});
      continue;
    }
    const auto [min, max] = std::ranges::minmax(row.gigabytes_per_s);
    table.add({row.way, cli::format_bytes(row.page_bytes), row.taken,
               fmt::format("{:.2f}", median(row.gigabytes_per_s)), fmt::format("{:.2f}", min),
               fmt::format("{:.2f}", max), row.verified ? "yes" : "NO"});
  }
  table.print();
  fmt::print("\na {} page on one node, asked to told, {} times: p50 {:.0f} us, p99 {:.0f} us\n",
             cli::format_bytes(kSmallBytes), small.count, small.p50, small.p99);
}

std::string json_of(const GpuBenchOptions& options, const std::vector<Row>& rows,
                    const workload::Latency& small) {
  nlohmann::json json{{"provider", options.provider},         {"round_bytes", options.round_bytes},
                      {"region_bytes", options.region_bytes}, {"in_flight", options.in_flight},
                      {"small", workload::to_json_us(small)}, {"results", nlohmann::json::array()}};
  for (const Row& row : rows)
    json["results"].push_back({{"way", row.way},
                               {"page_bytes", row.page_bytes},
                               {"path", row.taken},
                               {"gigabytes_per_s", median(row.gigabytes_per_s)},
                               {"rounds", row.gigabytes_per_s},
                               {"service_us", median(row.service_us)},
                               {"verified", row.verified},
                               {"error", row.error}});
  return json.dump();
}

}  // namespace

bool bench_gpu(const GpuBenchOptions& options, bool json) {
  LocalCluster cluster({.provider = options.provider, .settings = options.settings, .gpus = true});
  std::vector<Row> rows;
  workload::Latency small;
  try {
    GpuBench bench(options, cluster);
    small = bench.small();
    for (const Way& way : ways_of(options))
      if (way.name.find(options.ways) != std::string::npos)
        for (Row& row : bench.measure(way)) rows.push_back(std::move(row));
  } catch (...) {
    if (!interrupted()) cluster.show_logs();
    throw;
  }
  if (json)
    print_json(json_of(options, rows, small));
  else
    print(rows, small);
  return std::ranges::all_of(rows, &Row::verified);
}

}  // namespace penstock::app
