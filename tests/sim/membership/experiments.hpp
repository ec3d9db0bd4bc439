// What is measured on a simulated cluster. Times are in protocol periods, as the papers give them.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/sim/membership/cluster.hpp"

namespace penstock {

/// Each value is one round's.
struct Convergence {
  std::vector<double> death_first;  // from the crash until one node says dead
  std::vector<double> death_all;    // from the crash until the last one says it
  std::vector<double> death_told;   // from the first to the last
  std::vector<double> join_all;     // from a process's start until the last one has its record
  std::vector<double> leave_all;    // from leave() until the last one knows
  bool complete = true;             // false: something was not known to all after 100 periods
};
/// Rounds of: a node crashes, comes back as another incarnation, leaves, comes back again.
Convergence measure_convergence(Cluster::Options options, std::size_t rounds);

struct Peace {
  std::uint64_t false_deaths = 0;   // a node says dead of one that runs, and is not slow
  std::uint64_t false_victims = 0;  // of how many
  std::uint64_t slow_deaths = 0;    // the same of slow nodes
  std::uint64_t accusations = 0;    // suspicions by nodes' own probes
  double frames = 0;                // sent per node and second
  double bytes = 0;
  double wall_s = 0;
  std::uint64_t events = 0;
};
/// Nobody dies for `time`.
Peace measure_peace(Cluster::Options options, Clock::duration time);

double median(std::vector<double> values);
double largest(const std::vector<double>& values);

}  // namespace penstock
