#include "apps/penstock/ladder.hpp"

#include <fmt/format.h>

#include "apps/penstock/globals.hpp"
#include "apps/penstock/ladder_steps.hpp"
#include "apps/penstock/local_cluster.hpp"
#include "apps/penstock/page_mover.hpp"
#include "apps/penstock/progress.hpp"
#include "apps/penstock/table.hpp"

namespace penstock::app {
namespace {

constexpr std::uint64_t kSmallBytes = 4096;

/// What the rounds of one step gave, by page size.
struct Climbed {
  std::vector<std::vector<double>> gbps;
  std::vector<std::vector<double>> cpu_s_per_gb;
  std::vector<double> first_us;
};

class Ladder {
 public:
  explicit Ladder(const LadderOptions& options)
      : options_(options), steps_(ladder_steps(options.provider)), climbed_(steps_.size()) {
    for (auto& step : climbed_) {
      step.gbps.resize(options.page_bytes.size());
      step.cpu_s_per_gb.resize(options.page_bytes.size());
    }
  }

  void climb() {
    Progress progress("ladder", (options_.rounds + 1) * steps_.size());
    std::uint64_t done = 0;
    for (std::size_t round = 0; round <= options_.rounds; ++round) {
      for (std::size_t i = 0; i < steps_.size(); ++i, ++done) {
        std::size_t step = (i + round) % steps_.size();  // each is first in its turn
        if (steps_[step].skipped) continue;
        progress.show(done,
                      fmt::format("round {} of {}: {}", round, options_.rounds, steps_[step].name));
        // Round 0 warms the machine up and is not counted.
        Climbed unused = climbed_[step];
        one_round(step, round, round == 0 ? unused : climbed_[step]);
      }
    }
  }

  workload::LadderReport report() const {
    workload::LadderReport report{.provider = options_.provider,
                                  .round_bytes = options_.round_bytes,
                                  .rounds = options_.rounds,
                                  .page_bytes = options_.page_bytes,
                                  .rungs = {},
                                  .verified = verified_};
    std::vector<std::vector<workload::LadderCell>> columns;
    for (std::size_t page = 0; page < options_.page_bytes.size(); ++page) {
      std::vector<std::vector<double>> gbps;
      for (const auto& step : climbed_) gbps.push_back(step.gbps[page]);
      columns.push_back(workload::ladder_cells(options_.page_bytes[page], gbps));
    }
    for (std::size_t step = 0; step < steps_.size(); ++step) {
      workload::LadderRung rung{.name = steps_[step].name,
                                .change = steps_[step].change,
                                .skipped = steps_[step].skipped.value_or(""),
                                .first_us = workload::spread_of(climbed_[step].first_us).median,
                                .cells = {}};
      for (std::size_t page = 0; rung.skipped.empty() && page < columns.size(); ++page) {
        auto cell = columns[page][step];
        cell.cpu_s_per_gb = workload::spread_of(climbed_[step].cpu_s_per_gb[page]).median;
        rung.cells.push_back(cell);
      }
      report.rungs.push_back(std::move(rung));
    }
    return report;
  }

 private:
  ClusterOptions cluster_options(std::size_t last) const {
    ClusterOptions cluster{.provider = options_.provider};
    cluster.node_settings.resize(cluster.nodes.size());
    for (std::size_t step = 0; step <= last; ++step) {
      if (steps_[step].skipped) continue;
      const auto& added = steps_[step].settings;
      cluster.settings.insert(cluster.settings.end(), added.begin(), added.end());
      for (std::size_t node = 0; node < steps_[step].by_node.size(); ++node) {
        const auto& own = steps_[step].by_node[node];
        cluster.node_settings[node].insert(cluster.node_settings[node].end(), own.begin(),
                                           own.end());
      }
    }
    cluster.settings.insert(cluster.settings.end(), options_.settings.begin(),
                            options_.settings.end());
    return cluster;
  }

  void one_round(std::size_t step, std::size_t round, Climbed& climbed) {
    LocalCluster cluster(cluster_options(step));
    try {
      PageMover mover(cluster.client(0), cluster.client(1), "ladder", options_.region_bytes, 1);
      auto first = wait(mover.submit(client::Direction::kWrite, kSmallBytes, {{0}, {0}}));
      climbed.first_us.push_back(first.seconds() * 1e6);
      for (std::size_t page = 0; page < options_.page_bytes.size(); ++page) {
        move(cluster, mover, page, round, climbed);
      }
    } catch (...) {
      if (!interrupted()) cluster.show_logs();
      throw;
    }
  }

  void move(LocalCluster& cluster, PageMover& mover, std::size_t page, std::size_t round,
            Climbed& climbed) {
    auto page_bytes = options_.page_bytes[page];
    auto lists =
        random_pages(options_.region_bytes / page_bytes, options_.round_bytes / page_bytes, round);
    auto cpu = cluster.cpu_seconds();
    auto moved =
        wait(mover.submit(client::Direction::kWrite, page_bytes, lists), [&] { cluster.check(); });
    cpu = cluster.cpu_seconds() - cpu;
    auto gigabytes = static_cast<double>(moved.bytes()) / 1e9;
    climbed.gbps[page].push_back(8 * gigabytes / moved.seconds());
    climbed.cpu_s_per_gb[page].push_back(cpu / gigabytes);
    auto different = mover.verify(page_bytes, lists);
    if (different.empty()) return;
    verified_ = false;
    fmt::print(stderr, "penstock: different: {}\n", different.front().text());
  }

  const LadderOptions& options_;
  const std::vector<LadderStep> steps_;
  std::vector<Climbed> climbed_;
  bool verified_ = true;
};

}  // namespace

workload::LadderReport climb(const LadderOptions& options) {
  Ladder ladder(options);
  ladder.climb();
  return ladder.report();
}

void print_ladder(const workload::LadderReport& report) {
  auto rows = workload::ladder_table(report);
  Table table(rows.front());
  for (std::size_t i = 1; i < rows.size(); ++i) table.add(rows[i]);
  table.print();
  fmt::print("\ngain: speed by that of the step before, median of {} rounds; verified: {}\n",
             report.rounds, report.verified ? "yes" : "NO");
  for (const auto& rung : report.rungs) {
    if (!rung.skipped.empty()) fmt::print("skipped: {}: {}\n", rung.name, rung.skipped);
  }
}

}  // namespace penstock::app
