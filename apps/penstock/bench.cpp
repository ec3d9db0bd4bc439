// penstock bench: page sizes and directions, each beside the bare libfabric loop.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>

#include "apps/penstock/commands.hpp"
#include "apps/penstock/gpu_bench.hpp"
#include "apps/penstock/ladder.hpp"
#include "apps/penstock/local_cluster.hpp"
#include "apps/penstock/machine_room.hpp"
#include "apps/penstock/page_mover.hpp"
#include "apps/penstock/progress.hpp"
#include "apps/penstock/raw_yardstick.hpp"
#include "apps/penstock/submit_bench.hpp"
#include "apps/penstock/table.hpp"
#include "client/cli/quantity.hpp"
#include "client/cli/usage_error.hpp"
#include "client/workload/measurement.hpp"

namespace penstock::app {
namespace {

using client::Direction;
using workload::BenchRow;
using workload::MeasuredPair;

constexpr std::uint64_t kSmallBytes = 4096;
constexpr std::size_t kSmallWarmUp = 10;
constexpr std::uint64_t kBulkPageBytes = 65536;
constexpr std::size_t kBulkBatches = 3;  // under way at once

constexpr const char* kFooter = R"(
Every round moves random pages of a region to random places of another, first with one of the two,
then the same pages with the other: Penstock, and a bare libfabric loop with the same provider and
window. The ratio is the median over the pairs of rounds, so that a machine that changes its speed
changes both. CPU seconds are those of both ends. Every round is verified.

At the end a client asks for one small transfer after the other, by ZeroMQ and by its ring, and
waits awake: how long until it is accepted, and until it is done.

With --ladder there is no bare loop: the services start with every optimisation switched off, and
each step switches one more on.

Examples:
  penstock bench --pages 64KiB --pairs 9 --json
  penstock bench --ladder --svg ladder.svg)";

struct Arguments {
  std::vector<std::string> pages{"4KiB", "16KiB", "64KiB", "256KiB", "1MiB"};
  std::vector<std::string> directions{"write", "read"};
  std::size_t pairs = 5;
  std::string bytes = "256MiB";
  std::string region = "1GiB";
  std::string window = "16MiB";
  std::uint32_t window_operations = 256;
  std::size_t small_rounds = 500;
  std::uint32_t run = 1;
  bool no_merge = false;
  std::string provider = "tcp";
  std::vector<std::string> settings;
  bool ladder = false;
  std::string svg;
  std::string memory = "host";
  std::size_t in_flight = 16;
  std::string ways;
};

struct Plan {
  std::vector<std::uint64_t> page_bytes;
  std::uint64_t round_bytes = 0;
  std::uint64_t region_bytes = 0;
  std::uint64_t window_bytes = 0;
};

Plan plan_of(const Arguments& arguments) {
  Plan plan;
  plan.round_bytes = cli::parse_bytes(arguments.bytes);
  plan.region_bytes = cli::parse_bytes(arguments.region);
  plan.window_bytes = cli::parse_bytes(arguments.window);
  for (const auto& text : arguments.pages) {
    plan.page_bytes.push_back(cli::parse_bytes(text));
    check_pages(plan.region_bytes, plan.page_bytes.back());
    check_pages(plan.round_bytes, plan.page_bytes.back());
  }
  if (plan.round_bytes > plan.region_bytes) {
    throw cli::UsageError(
        fmt::format("a round moves {} out of regions of {}: --bytes is at most "
                    "--region",
                    cli::format_bytes(plan.round_bytes), cli::format_bytes(plan.region_bytes)));
  }
  return plan;
}

std::vector<std::string> settings_of(const Arguments& arguments, const Plan& plan) {
  // One peer, one card: the link may have the whole of the card's window, as the bare loop has.
  std::vector<std::string> settings{
      fmt::format("fabric.window_bytes={}", plan.window_bytes),
      fmt::format("fabric.link_window_bytes={}", plan.window_bytes),
      fmt::format("fabric.window_operations={}", arguments.window_operations),
      fmt::format("fabric.link_window_operations={}", arguments.window_operations)};
  if (arguments.no_merge) settings.emplace_back("fabric.merge=false");
  settings.insert(settings.end(), arguments.settings.begin(), arguments.settings.end());
  return settings;
}

class Bench {
 public:
  Bench(LocalCluster& cluster, const Arguments& arguments, const Plan& plan)
      : cluster_(cluster),
        plan_(plan),
        pairs_(arguments.pairs),
        run_(arguments.run),
        mover_(cluster.client(0), cluster.client(1), "bench", plan.region_bytes, 1),
        // A read is asked of the destination's service, so the same two regions serve both.
        raw_({.provider = arguments.provider,
              .region_bytes = plan.region_bytes,
              .window_bytes = plan.window_bytes,
              .window_operations = arguments.window_operations,
              .huge_pages = huge_pages_of(arguments.settings)},
             cluster.folder() / "raw.log") {
    warn_of_unequal_pages();
  }

  BenchRow row(std::uint64_t page_bytes, const std::string& direction, Progress& progress,
               std::uint64_t& steps) {
    auto way = direction == "read" ? Direction::kRead : Direction::kWrite;
    std::vector<MeasuredPair> pairs;
    bool verified = true;
    // The first pair warms both up and is not counted.
    for (std::size_t i = 0; i <= pairs_; ++i) {
      progress.show(steps++, fmt::format("{} {}", direction, cli::format_bytes(page_bytes)));
      auto lists = random_pages(plan_.region_bytes / page_bytes, plan_.round_bytes / page_bytes,
                                ++seed_, run_);
      MeasuredPair pair;
      if (i % 2 == 0) {
        pair.raw = raw_.move(way, page_bytes, lists.source, lists.destination);
        pair.ours = ours(way, page_bytes, lists);
      } else {
        pair.ours = ours(way, page_bytes, lists);
        pair.raw = raw_.move(way, page_bytes, lists.source, lists.destination);
      }
      verified = verify(page_bytes, lists) && verified;
      if (i > 0) pairs.push_back(pair);
    }
    return workload::bench_row(page_bytes, direction, pairs, verified);
  }

  /// One small urgent transfer after the other; `between` is called before each.
  workload::Latency small(
      std::size_t rounds, const std::function<void()>& between = [] {}) {
    std::vector<double> us;
    auto pages = static_cast<std::uint32_t>(plan_.region_bytes / kSmallBytes);
    for (std::size_t i = 0; i < kSmallWarmUp + rounds; ++i) {
      between();
      auto page = static_cast<std::uint32_t>(i) % pages;
      auto moved = wait(mover_.submit(Direction::kWrite, kSmallBytes, {{page}, {page}}, 1,
                                      client::Lane::kUrgent));
      if (i >= kSmallWarmUp) us.push_back(moved.seconds() * 1e6);
    }
    return workload::latency_of(std::move(us));
  }
  /// The same while bulk transfers keep both services busy.
  workload::Latency small_beside_bulk(std::size_t rounds) {
    auto lists = random_pages(plan_.region_bytes / kBulkPageBytes,
                              plan_.round_bytes / kBulkPageBytes, ++seed_);
    std::deque<Batch> bulk;
    auto latency = small(rounds, [&] {
      while (!bulk.empty() && bulk.front().bytes_done() >= plan_.round_bytes) bulk.pop_front();
      while (bulk.size() < kBulkBatches)
        bulk.push_back(mover_.submit(Direction::kWrite, kBulkPageBytes, lists));
    });
    for (const auto& batch : bulk) wait(batch);
    return latency;
  }

 private:
  /// The last huge pages may have gone to one of the two.
  void warn_of_unequal_pages() const {
    auto on_huge_pages = [](const std::string& name) {
      return name.find('/', 1) != std::string::npos;
    };
    if (on_huge_pages(mover_.shared_name()) == on_huge_pages(raw_.shared_name())) return;
    fmt::print(
        stderr,
        "penstock: the services' regions and the bare loop's are on pages of different size: "
        "reserve more huge pages, or --set memory.huge_pages=never\n");
  }

  workload::Measurement ours(Direction way, std::uint64_t page_bytes, const PageLists& lists) {
    auto cpu = cluster_.cpu_seconds();
    auto moved = wait(mover_.submit(way, page_bytes, lists), [this] { cluster_.check(); });
    return {moved.bytes(), moved.writes(), moved.seconds(), cluster_.cpu_seconds() - cpu};
  }

  bool verify(std::uint64_t page_bytes, const PageLists& lists) {
    auto different = mover_.verify(page_bytes, lists);
    for (std::size_t i = 0; i < different.size() && i < 5; ++i) {
      fmt::print(stderr, "penstock: different: {}\n", different[i].text());
    }
    return different.empty();
  }

  LocalCluster& cluster_;
  const Plan plan_;
  const std::size_t pairs_;
  const std::uint32_t run_;
  PageMover mover_;
  RawYardstick raw_;
  std::uint64_t seed_ = 0;
};

void print(const std::vector<BenchRow>& rows, const workload::Latency& small,
           const workload::Latency& beside_bulk, const SubmitReport& submit) {
  Table table({"page", "direction", "Gbps", "raw Gbps", "ratio", "min", "max", "writes/s",
               "raw writes/s", "CPU s/GB", "raw CPU s/GB", "verified"});
  for (const auto& row : rows) {
    table.add({cli::format_bytes(row.page_bytes), row.direction,
               fmt::format("{:.2f}", row.gbps.median), fmt::format("{:.2f}", row.raw_gbps.median),
               fmt::format("{:.3f}", row.ratio.median), fmt::format("{:.3f}", row.ratio.min),
               fmt::format("{:.3f}", row.ratio.max), fmt::format("{:.0f}", row.writes_per_s),
               fmt::format("{:.0f}", row.raw_writes_per_s), fmt::format("{:.3f}", row.cpu_s_per_gb),
               fmt::format("{:.3f}", row.raw_cpu_s_per_gb), row.verified ? "yes" : "NO"});
  }
  table.print();
  if (small.count == 0) return;
  fmt::print("\nan urgent {} transfer, asked to told, {} times:\n", cli::format_bytes(kSmallBytes),
             small.count);
  for (const auto& [name, latency] : {std::pair("alone", &small), {"beside bulk", &beside_bulk}})
    fmt::print("  {:<12} p50 {:.0f} us, p99 {:.0f} us, max {:.0f} us\n", name, latency->p50,
               latency->p99, latency->max);
  print_submit(submit);
}

std::string json_of(const Arguments& arguments, const Plan& plan, const std::vector<BenchRow>& rows,
                    const workload::Latency& small, const workload::Latency& beside_bulk,
                    const SubmitReport& submit) {
  nlohmann::json json{{"provider", arguments.provider},
                      {"window_bytes", plan.window_bytes},
                      {"window_operations", arguments.window_operations},
                      {"region_bytes", plan.region_bytes},
                      {"round_bytes", plan.round_bytes},
                      {"pairs", arguments.pairs},
                      {"merge", !arguments.no_merge},
                      {"verified", std::ranges::all_of(rows, &BenchRow::verified)},
                      {"results", nlohmann::json::array()},
                      {"run", arguments.run},
                      {"small", workload::to_json_us(small)},
                      {"small_beside_bulk", workload::to_json_us(beside_bulk)},
                      {"submit", to_json(submit)}};
  json["small"]["bytes"] = kSmallBytes;
  for (const auto& row : rows) json["results"].push_back(workload::to_json(row));
  return json.dump();
}

void run_ladder(const Arguments& arguments, const Globals& globals) {
  auto plan = plan_of(arguments);
  require_memory({.shared_bytes = 2 * plan.region_bytes}, "--region");
  std::ofstream svg;
  if (!arguments.svg.empty()) {
    svg.open(arguments.svg);
    if (!svg) throw cli::UsageError(arguments.svg + " cannot be written");
  }
  watch_interrupts();
  auto report = climb({.provider = arguments.provider,
                       .page_bytes = plan.page_bytes,
                       .round_bytes = plan.round_bytes,
                       .region_bytes = plan.region_bytes,
                       .rounds = arguments.pairs,
                       .settings = arguments.settings});
  if (svg.is_open()) svg << workload::ladder_svg(report);
  if (globals.json) {
    print_json(workload::to_json(report).dump());
  } else {
    print_ladder(report);
  }
  if (!report.verified) throw Exit(ExitCode::kFailed, "pages are not what they should be");
}

void run_on_gpu(const Arguments& arguments, const Globals& globals) {
  auto plan = plan_of(arguments);
  require_memory({.shared_bytes = 2 * plan.region_bytes}, "--region");
  watch_interrupts();
  const bool verified = bench_gpu({.provider = arguments.provider,
                                   .page_bytes = plan.page_bytes,
                                   .round_bytes = plan.round_bytes,
                                   .region_bytes = plan.region_bytes,
                                   .rounds = arguments.pairs,
                                   .in_flight = arguments.in_flight,
                                   .small_rounds = arguments.small_rounds,
                                   .ways = arguments.ways,
                                   .settings = settings_of(arguments, plan)},
                                  globals.json);
  if (!verified) throw Exit(ExitCode::kFailed, "pages are not what they should be");
}

void run(const Arguments& arguments, const Globals& globals) {
  auto plan = plan_of(arguments);
  require_memory({.shared_bytes = 4 * plan.region_bytes}, "--region");
  watch_interrupts();
  LocalCluster cluster({.provider = arguments.provider, .settings = settings_of(arguments, plan)});
  std::vector<BenchRow> rows;
  workload::Latency small;
  workload::Latency beside_bulk;
  SubmitReport submit;
  try {
    Bench bench(cluster, arguments, plan);
    auto combinations = plan.page_bytes.size() * arguments.directions.size();
    Progress progress("bench", combinations * (arguments.pairs + 1));
    std::uint64_t steps = 0;
    for (auto page_bytes : plan.page_bytes) {
      for (const auto& direction : arguments.directions) {
        rows.push_back(bench.row(page_bytes, direction, progress, steps));
      }
    }
    small = bench.small(arguments.small_rounds);
    beside_bulk = bench.small_beside_bulk(arguments.small_rounds);
    submit = bench_submit(cluster, arguments.small_rounds);
  } catch (...) {
    if (!interrupted()) cluster.show_logs();
    throw;
  }
  if (globals.json) {
    print_json(json_of(arguments, plan, rows, small, beside_bulk, submit));
  } else {
    print(rows, small, beside_bulk, submit);
  }
  if (!std::ranges::all_of(rows, &BenchRow::verified)) {
    throw Exit(ExitCode::kFailed, "pages are not what they should be");
  }
}

}  // namespace

void add_bench(CLI::App& app, Globals& globals) {
  auto arguments = std::make_shared<Arguments>();
  auto* command =
      app.add_subcommand("bench", "Measure two services started here beside a bare libfabric loop");
  auto* pages = command->add_option("--pages", arguments->pages, "Page sizes")
                    ->delimiter(',')
                    ->capture_default_str();
  command->add_option("--directions", arguments->directions, "write, read or both")
      ->delimiter(',')
      ->check(CLI::IsMember({"write", "read"}))
      ->capture_default_str();
  command->add_option("--pairs", arguments->pairs, "Pairs of rounds that count")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--bytes", arguments->bytes, "Moved in each round")->capture_default_str();
  command->add_option("--region", arguments->region, "Size of the regions")->capture_default_str();
  command->add_option("--window", arguments->window, "Bytes posted at once, of both")
      ->capture_default_str();
  command
      ->add_option("--window-operations", arguments->window_operations,
                   "Operations posted at once, of both")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--run", arguments->run, "Pages in runs of so many neighbours")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--small", arguments->small_rounds, "How often a 4 KiB page moves alone")
      ->capture_default_str();
  command->add_flag("--no-merge", arguments->no_merge,
                    "Neighbouring pages stay writes of their own");
  command->add_option("--provider", arguments->provider, "tcp (over loopback) or shm")
      ->capture_default_str();
  command->add_option("--set", arguments->settings,
                      "A setting of both services, as for penstockd: section.key=value");
  command
      ->add_option(
          "--memory", arguments->memory,
          "cuda: pages in memory of a GPU, over every path that there is, beside host memory")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  command
      ->add_option("--in-flight", arguments->in_flight,
                   "With --memory cuda: requests of --bytes each at once on one node")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--ways", arguments->ways,
                      "With --memory cuda: only the ways whose names contain this");
  auto* ladder = command->add_flag("--ladder", arguments->ladder,
                                   "Switch the optimisations on one after another");
  command->add_option("--svg", arguments->svg, "A chart of the ladder, into this file")
      ->needs(ladder);
  command->footer(kFooter);
  command->callback([arguments, pages, &globals] {
    if (arguments->memory == "cuda") return run_on_gpu(*arguments, globals);
    if (!arguments->ladder) return run(*arguments, globals);
    if (pages->empty()) arguments->pages = {"64KiB", "4KiB"};
    run_ladder(*arguments, globals);
  });
}

}  // namespace penstock::app
