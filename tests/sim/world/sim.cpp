// penstock_sim: runs seeds of the simulated cluster (world.hpp) and says what broke. `./dev sim`.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "tests/sim/world/world.hpp"

namespace penstock::sim {
namespace {

struct Asked {
  double minutes = 0;
  std::optional<std::uint64_t> seed;
  std::string seeds;
  unsigned workers = std::max(1u, std::thread::hardware_concurrency());
  bool keep_going = false;
};

struct Sum {
  std::uint64_t seeds = 0;
  std::uint64_t violations = 0;
  std::uint64_t asked = 0;
  std::uint64_t done = 0;
  std::uint64_t late = 0;
  double simulated_hours = 0;
};

/// One process per worker: a world is one thread's, and what a seed breaks stays with it.
struct Range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::optional<std::chrono::steady_clock::time_point> end;
};

void add(Sum& sum, const World& world) {
  ++sum.seeds;
  sum.asked += world.asked();
  sum.done += world.done();
  sum.late += world.landed_late();
  sum.simulated_hours += std::chrono::duration<double, std::ratio<3600>>(world.simulated()).count();
  sum.violations += !world.failures().empty();
}

/// Every `step`th seed; the first that breaks ends it, unless it is to keep going.
Sum work(Range range, unsigned step, bool keep_going) {
  Sum sum;
  for (std::uint64_t seed = range.first; seed <= range.last; seed += step) {
    if (range.end && std::chrono::steady_clock::now() >= *range.end) break;
    World world(seed);
    world.run();
    add(sum, world);
    if (world.failures().empty()) continue;
    if (!keep_going) fmt::print("{}\n", world.history());
    fmt::print("seed {}: {}\n", seed, world.failures().front());
    std::fflush(stdout);
    if (!keep_going) break;
  }
  return sum;
}

struct Worker {
  pid_t process;
  int results;
};

Worker start_worker(Range range, unsigned step, bool keep_going) {
  int ends[2];
  if (pipe(ends) != 0) return {-1, -1};
  const pid_t process = fork();
  if (process != 0) {
    close(ends[1]);
    return {process, ends[0]};
  }
  const Sum sum = work(range, step, keep_going);
  const bool told = write(ends[1], &sum, sizeof sum) == sizeof sum;
  _exit(told && sum.violations == 0 ? 0 : 1);
}

/// A worker that dies without a word counts as a violation.
Sum work_together(Range range, unsigned workers, bool keep_going) {
  std::vector<Worker> started;
  for (unsigned i = 0; i < workers; ++i)
    started.push_back(start_worker({range.first + i, range.last, range.end}, workers, keep_going));
  Sum all;
  for (const Worker& worker : started) {
    Sum sum;
    if (read(worker.results, &sum, sizeof sum) != sizeof sum) {
      fmt::print("a worker died: run its seeds with --workers 1\n");
      sum = {.violations = 1};
    }
    close(worker.results);
    waitpid(worker.process, nullptr, 0);
    all.seeds += sum.seeds;
    all.violations += sum.violations;
    all.asked += sum.asked;
    all.done += sum.done;
    all.late += sum.late;
    all.simulated_hours += sum.simulated_hours;
  }
  return all;
}

int run_seed(std::uint64_t seed) {
  World world(seed);
  world.run();
  fmt::print("{}\n", world.history());
  for (const auto& failure : world.failures()) fmt::print("seed {}: {}\n", seed, failure);
  fmt::print("seed {}: {} of {} transfers done, {} writes landed late, digest {:016x}\n", seed,
             world.done(), world.asked(), world.landed_late(), world.digest());
  return world.failures().empty() ? 0 : 1;
}

int run(const Asked& asked) {
  if (asked.seed) return run_seed(*asked.seed);
  std::uint64_t first = std::random_device()() * std::uint64_t{1000003};
  std::uint64_t last = ~std::uint64_t{0};
  std::optional<double> minutes = asked.minutes > 0 ? asked.minutes : 1;
  if (!asked.seeds.empty()) {
    if (std::sscanf(asked.seeds.c_str(), "%lu-%lu", &first, &last) != 2 || last < first) {
      fmt::print(stderr, "--seeds wants the first and the last, as in 1-1000, not '{}'\n",
                 asked.seeds);
      return 2;
    }
    if (asked.minutes <= 0) minutes.reset();
  }
  const auto began = std::chrono::steady_clock::now();
  Range range{first, last, std::nullopt};
  if (minutes)
    range.end = began + std::chrono::milliseconds(static_cast<std::int64_t>(*minutes * 60e3));
  const Sum sum = work_together(range, asked.workers, asked.keep_going);
  const double took =
      std::chrono::duration<double, std::ratio<60>>(std::chrono::steady_clock::now() - began)
          .count();
  fmt::print(
      "{} seeds from {}, {} violations; {} transfers, {} done, {} writes landed late;\n"
      "{:.1f} simulated hours in {:.1f} minutes, {:.1f} per minute\n",
      sum.seeds, first, sum.violations, sum.asked, sum.done, sum.late, sum.simulated_hours, took,
      sum.simulated_hours / took);
  return sum.violations == 0 ? 0 : 1;
}

}  // namespace
}  // namespace penstock::sim

int main(int argc, char** argv) {
  penstock::sim::Asked asked;
  CLI::App app{
      "Runs a simulated cluster over many seeds; the first that breaks a promise prints "
      "its history."};
  app.add_option("--minutes", asked.minutes, "run fresh seeds for so long (default: 1)");
  app.add_option("--seed", asked.seed, "run this one and print its history");
  app.add_option("--seeds", asked.seeds, "run these: FIRST-LAST");
  app.add_option("--workers", asked.workers, "at once (default: as many as there are cores)");
  app.add_flag("--keep-going", asked.keep_going, "one line for each seed that breaks, no history");
  CLI11_PARSE(app, argc, argv);
  return penstock::sim::run(asked);
}
