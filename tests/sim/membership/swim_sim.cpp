// Measures membership on simulated clusters; docs/membership.md shows the results.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/sim/membership/experiments.hpp"

namespace penstock {
namespace {

struct Arguments {
  std::vector<std::size_t> nodes{100, 300, 1000};
  std::vector<double> loss{0};
  std::vector<std::size_t> slow{0};  // in a thousand nodes
  std::uint64_t seed = 1;
  std::size_t rounds = 10;
  double minutes = 10;
  bool plain = false;
  Swim::Options swim;
};

Cluster::Options options_of(const Arguments& arguments, std::size_t nodes, double loss,
                            std::size_t slow) {
  Cluster::Options options;
  options.nodes = nodes;
  options.seed = arguments.seed;
  options.loss = loss / 100;
  options.slow_nodes = nodes * slow / 1000;
  options.swim = arguments.swim;
  options.swim.lifeguard = !arguments.plain;
  return options;
}

template <class Measure>
void for_each_case(const Arguments& arguments, Measure measure) {
  for (std::size_t nodes : arguments.nodes)
    for (double loss : arguments.loss)
      for (std::size_t slow : arguments.slow) {
        fmt::print("| {} | {} % | {} | {} |", nodes, loss, nodes * slow / 1000,
                   arguments.plain ? "plain SWIM" : "Lifeguard");
        std::fflush(stdout);
        measure(options_of(arguments, nodes, loss, slow));
        std::fflush(stdout);
      }
}

int converge(const Arguments& arguments) {
  bool complete = true;
  fmt::print(
      "| nodes | loss | slow | | death: first | death: all | first to last | join: all | "
      "leave: all |\n|---|---|---|---|---|---|---|---|---|\n");
  for_each_case(arguments, [&](const Cluster::Options& options) {
    const Convergence c = measure_convergence(options, arguments.rounds);
    const auto cell = [](const std::vector<double>& values) {
      return fmt::format("{:.1f} ({:.1f})", median(values), largest(values));
    };
    fmt::print(" {} | {} | {} | {} | {} |{}\n", cell(c.death_first), cell(c.death_all),
               cell(c.death_told), cell(c.join_all), cell(c.leave_all),
               c.complete ? "" : " INCOMPLETE");
    complete &= c.complete;
  });
  return complete ? 0 : 1;
}

int peace(const Arguments& arguments) {
  fmt::print(
      "| nodes | loss | slow | | false deaths (told / nodes) | deaths of slow nodes (told) | "
      "accusations | frames/s | bytes/s | wall s |\n|---|---|---|---|---|---|---|---|---|---|\n");
  const auto time = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(arguments.minutes * 60));
  for_each_case(arguments, [&](const Cluster::Options& options) {
    const Peace p = measure_peace(options, time);
    fmt::print(" {} / {} | {} | {} | {:.1f} | {:.0f} | {:.0f} |\n", p.false_deaths, p.false_victims,
               p.slow_deaths, p.accusations, p.frames, p.bytes, p.wall_s);
  });
  return 0;
}

int main(int argc, char** argv) {
  CLI::App app{"Penstock's membership at scale, on a virtual clock"};
  Arguments arguments;
  app.require_subcommand(1);
  const auto common = [&](CLI::App* command) {
    command->add_option("--nodes", arguments.nodes, "cluster sizes")->delimiter(',');
    command->add_option("--loss", arguments.loss, "percent of frames")->delimiter(',');
    command->add_option("--slow", arguments.slow, "slow nodes in a thousand")->delimiter(',');
    command->add_option("--seed", arguments.seed, "decides everything: the same again");
    command->add_flag("--plain", arguments.plain, "SWIM without Lifeguard");
    return command;
  };
  auto* converging = common(app.add_subcommand(
      "converge", "periods until all know a death, join, leave: median (largest)"));
  converging->add_option("--rounds", arguments.rounds, "deaths, with two joins and a leave each");
  auto* peaceful =
      common(app.add_subcommand("peace", "nobody dies: false deaths, and what is sent per node"));
  peaceful->add_option("--minutes", arguments.minutes, "of virtual time");
  CLI11_PARSE(app, argc, argv);
  return converging->parsed() ? converge(arguments) : peace(arguments);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::main(argc, argv); }
