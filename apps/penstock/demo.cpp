// penstock demo: two services on this machine move shuffled pages to each other and prove it.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <iostream>
#include <memory>

#include "apps/penstock/commands.hpp"
#include "apps/penstock/local_cluster.hpp"
#include "apps/penstock/machine_room.hpp"
#include "apps/penstock/page_mover.hpp"
#include "apps/penstock/progress.hpp"
#include "apps/penstock/raw_yardstick.hpp"
#include "apps/penstock/table.hpp"
#include "client/cli/quantity.hpp"
#include "client/cli/usage_error.hpp"
#include "client/workload/demo_report.hpp"

namespace penstock::app {
namespace {

using client::Direction;
using workload::DemoReport;
using workload::MeasuredPair;
using workload::Measurement;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kTransfersPerDirection = 16;  // enough for a progress bar that moves
constexpr std::uint64_t kSmallBytes = 4096;
constexpr std::size_t kSmallRounds = 200;
constexpr std::size_t kSmallWarmUp = 10;

struct Arguments {
  std::string bytes = "1GiB";
  std::string page = "64KiB";
  std::size_t rounds = 3;
  std::string provider = "tcp";
  std::string json;
  std::string memory = "host";
  std::vector<std::string> settings;
};

/// Both directions as one: from the first begin to the last end.
Measurement together(const Measurement& a, const Measurement& b, double seconds) {
  return {a.bytes + b.bytes, a.writes + b.writes, seconds, a.cpu_seconds + b.cpu_seconds};
}

class Demo {
 public:
  Demo(LocalCluster& cluster, DemoReport& report, HugePages huge_pages, Memory memory)
      : cluster_(cluster),
        report_(report),
        huge_pages_(huge_pages),
        forth_(cluster.client(0), cluster.client(1), "forth", report.region_bytes, 1, memory,
               memory),
        back_(cluster.client(1), cluster.client(0), "back", report.region_bytes, 1ULL << 40, memory,
              memory),
        raw_forth_(raw_options(), cluster.folder() / "raw-forth.log"),
        raw_back_(raw_options(), cluster.folder() / "raw-back.log") {
    report_.directions = {{cluster.name(0), cluster.name(1), {}, {}},
                          {cluster.name(1), cluster.name(0), {}, {}}};
  }

  void round(std::size_t number, std::size_t rounds) {
    auto pages = report_.region_bytes / report_.page_bytes;
    PageLists forth = random_pages(pages, pages, 2 * number);
    PageLists back = random_pages(pages, pages, 2 * number + 1);
    MeasuredPair pair_forth, pair_back, pair_together;
    auto ours = [&] {
      move_ours(forth, back, pair_forth.ours, pair_back.ours, pair_together.ours,
                fmt::format("round {} of {}", number + 1, rounds));
    };
    auto raw = [&] { move_raw(forth, back, pair_forth.raw, pair_back.raw, pair_together.raw); };
    // Taking turns at going first, so that neither always finds the machine as the other left it.
    if (number % 2 == 0) {
      raw();
      ours();
    } else {
      ours();
      raw();
    }
    report_.directions[0].rounds.push_back(pair_forth);
    report_.directions[1].rounds.push_back(pair_back);
    report_.together.push_back(pair_together);
    verify(forth_, forth);
    verify(back_, back);
  }

  void small_transfers() {
    std::vector<double> us;
    auto pages = report_.region_bytes / kSmallBytes;
    for (std::size_t i = 0; i < kSmallWarmUp + kSmallRounds; ++i) {
      auto page = static_cast<std::uint32_t>(i % pages);
      PageLists lists{{page}, {page}};
      auto moved = wait(forth_.submit(Direction::kWrite, kSmallBytes, lists));
      if (i >= kSmallWarmUp) us.push_back(moved.seconds() * 1e6);
    }
    report_.small_bytes = kSmallBytes;
    report_.small_us = workload::latency_of(std::move(us));
  }

 private:
  YardstickOptions raw_options() const {
    return {.provider = report_.provider,
            .region_bytes = report_.region_bytes,
            .huge_pages = huge_pages_};
  }

  void move_ours(const PageLists& forth, const PageLists& back, Measurement& first,
                 Measurement& second, Measurement& sum, const std::string& note) {
    Progress progress("moving", 2 * report_.region_bytes);
    auto cpu = cluster_.cpu_seconds();
    auto there =
        forth_.submit(Direction::kWrite, report_.page_bytes, forth, kTransfersPerDirection);
    auto here = back_.submit(Direction::kWrite, report_.page_bytes, back, kTransfersPerDirection);
    auto tick = [&] {
      cluster_.check();
      progress.show(there.bytes_done() + here.bytes_done(), note);
    };
    auto moved_there = wait(there, tick);
    auto moved_here = wait(here, tick);
    first = {moved_there.bytes(), moved_there.writes(), moved_there.seconds(), 0};
    second = {moved_here.bytes(), moved_here.writes(), moved_here.seconds(), 0};
    auto end = std::max(moved_there.end, moved_here.end);
    sum = together(first, second, std::chrono::duration<double>(end - moved_there.begin).count());
    sum.cpu_seconds = cluster_.cpu_seconds() - cpu;
    add_cards(report_.directions[0], moved_there);
    add_cards(report_.directions[1], moved_here);
  }

  /// The better of two ways: both pairs at once, as Penstock moves, or one after the other, which
  /// wins where a machine has fewer cores than the four that two pairs keep busy.
  void move_raw(const PageLists& forth, const PageLists& back, Measurement& first,
                Measurement& second, Measurement& sum) {
    auto begin = Clock::now();
    auto other = std::async(std::launch::async, [&] { return move_one(raw_back_, back); });
    first = move_one(raw_forth_, forth);
    second = other.get();
    sum = together(first, second, std::chrono::duration<double>(Clock::now() - begin).count());

    auto alone_forth = move_one(raw_forth_, forth);
    auto alone_back = move_one(raw_back_, back);
    auto seconds = alone_forth.seconds + alone_back.seconds;
    if (seconds >= sum.seconds) return;
    sum = together(alone_forth, alone_back, seconds);
    first = alone_forth;
    second = alone_back;
    first.seconds = second.seconds = seconds;  // each has half of what both had together
  }

  Measurement move_one(RawYardstick& raw, const PageLists& lists) const {
    return raw.move(Direction::kWrite, report_.page_bytes, lists.source, lists.destination);
  }

  static void add_cards(workload::DemoDirection& direction, const Moved& moved) {
    for (const auto& card : moved.cards()) {
      auto known = std::ranges::find(direction.cards, card.name, &workload::CardShare::name);
      if (known == direction.cards.end()) {
        direction.cards.push_back({card.name, card.bytes, card.writes});
      } else {
        known->bytes += card.bytes;
        known->writes += card.writes;
      }
    }
  }

  void verify(PageMover& mover, const PageLists& lists) {
    report_.expected_pages += lists.source.size();
    auto different = mover.verify(report_.page_bytes, lists);
    report_.verified_pages += lists.source.size();
    for (std::size_t i = 0; i < different.size() && i < 5; ++i) {
      fmt::print(stderr, "penstock: different: {}\n", different[i].text());
    }
    report_.different_pages += different.size();
  }

  LocalCluster& cluster_;
  DemoReport& report_;
  HugePages huge_pages_;
  PageMover forth_;
  PageMover back_;
  RawYardstick raw_forth_;
  RawYardstick raw_back_;
};

void add_row(Table& table, const std::string& label, const DemoReport& report,
             const std::vector<MeasuredPair>& rounds) {
  auto row = workload::bench_row(report.page_bytes, "write", rounds, report.verified());
  std::uint64_t bytes = 0;
  for (const auto& round : rounds) bytes += round.ours.bytes;
  table.add({label, cli::format_bytes(bytes), fmt::format("{:.2f}", row.gbps.median),
             fmt::format("{:.0f}", row.writes_per_s), fmt::format("{:.2f}", row.raw_gbps.median),
             fmt::format("{:.1f} %", 100 * row.ratio.median)});
}

void print(const DemoReport& report) {
  fmt::print("{} rounds: {} of shuffled {} pages each way, both ways at once, provider {}\n\n",
             report.together.size(), cli::format_bytes(report.region_bytes),
             cli::format_bytes(report.page_bytes), report.provider);
  Table table({"", "moved", "Gbps", "writes/s", "bare loop Gbps", "share of it"});
  for (const auto& direction : report.directions) {
    add_row(table, direction.from + " -> " + direction.to, report, direction.rounds);
    double seconds = 0;
    for (const auto& round : direction.rounds) seconds += round.ours.seconds;
    for (const auto& card : direction.cards) {
      Measurement sum{.bytes = card.bytes, .writes = card.writes, .seconds = seconds};
      table.add({"  card " + card.name, cli::format_bytes(card.bytes),
                 fmt::format("{:.2f}", sum.gbps()), fmt::format("{:.0f}", sum.writes_per_s()), "",
                 ""});
    }
  }
  add_row(table, "both", report, report.together);
  table.print();
  fmt::print("\na {} transfer, asked to told, {} times: p50 {:.0f} us, p99 {:.0f} us\n",
             cli::format_bytes(report.small_bytes), report.small_us.count, report.small_us.p50,
             report.small_us.p99);
  fmt::print("verified: {} of {} pages by digest, {} different\n", report.verified_pages,
             report.expected_pages, report.different_pages);
}

void write_json(const DemoReport& report, const std::string& path) {
  auto text = workload::to_json(report).dump(2) + "\n";
  if (path == "-") {
    std::cout << text;
    return;
  }
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw Exit(ExitCode::kFailed, path + " cannot be written");
}

void run(const Arguments& arguments) {
  DemoReport report;
  report.region_bytes = cli::parse_bytes(arguments.bytes);
  report.page_bytes = cli::parse_bytes(arguments.page);
  report.provider = arguments.provider;
  check_pages(report.region_bytes, report.page_bytes);
  // Ours: two regions on each of two nodes. The bare loop: two pairs.
  require_memory({.shared_bytes = 8 * report.region_bytes}, "--bytes");

  if (!arguments.json.empty() && arguments.json != "-" &&
      !std::ofstream(arguments.json, std::ios::app)) {
    throw cli::UsageError(arguments.json + " cannot be written");
  }

  watch_interrupts();
  fmt::print(stderr, "starting two services and two bare libfabric pairs\n");
  LocalCluster cluster({.provider = arguments.provider,
                        .settings = arguments.settings,
                        .gpus = arguments.memory == "cuda"});
  try {
    Demo demo(cluster, report, huge_pages_of(arguments.settings), memory_of(arguments.memory));
    for (std::size_t i = 0; i < arguments.rounds; ++i) demo.round(i, arguments.rounds);
    demo.small_transfers();
  } catch (...) {
    if (!interrupted()) cluster.show_logs();
    throw;
  }
  if (arguments.json != "-") print(report);
  if (!arguments.json.empty()) write_json(report, arguments.json);
  if (!report.verified()) {
    throw Exit(ExitCode::kFailed, fmt::format("{} of {} pages are not what they should be",
                                              report.different_pages, report.expected_pages));
  }
}

}  // namespace

void add_demo(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand(
      "demo", "Start two services here, move shuffled pages both ways at once, verify every page");
  command->add_option("--bytes", arguments->bytes, "Size of each region; moved whole, each way")
      ->capture_default_str();
  command->add_option("--page", arguments->page, "Page size")->capture_default_str();
  command->add_option("--rounds", arguments->rounds, "How often; the table shows medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--provider", arguments->provider, "tcp (over loopback) or shm")
      ->capture_default_str();
  command
      ->add_option(
          "--memory", arguments->memory,
          "Where the regions lie: host, or cuda: on a GPU (the bare loop's stay on the host)")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  command->add_option("--json", arguments->json, "Write the results to this file, too (-: print)")
      ->type_name("FILE");
  command->add_option("--set", arguments->settings,
                      "A setting of both services, as for penstockd: section.key=value");
  command->footer("\nExample:\n  penstock demo --bytes 256MiB --json demo.json");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace penstock::app
