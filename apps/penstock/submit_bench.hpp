// What asking costs: one small transfer after the other, by ZeroMQ and by a ring.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/penstock/local_cluster.hpp"
#include "client/workload/statistics.hpp"

namespace penstock::app {

struct SubmitRow {
  std::string way;  // "zmq", "ring", "ring_asleep"
  // In microseconds, from the call.
  workload::Latency accepted;        // to the id, one request behind the other
  workload::Latency accepted_alone;  // to the id, when nothing was asked for a while
  workload::Latency done;            // to the end, of the same
  /// Where the service spent it: the middle one of each stage, in their order.
  std::vector<std::pair<std::string, double>> stages;
};
using SubmitReport = std::vector<SubmitRow>;

/// `rounds` urgent transfers of 4 KiB each from the first node to the second; those that only warm
/// up come on top. Throws Exit kFailed when a client that wants a ring gets none.
SubmitReport bench_submit(LocalCluster& cluster, std::size_t rounds);

void print_submit(const SubmitReport& report);
nlohmann::json to_json(const SubmitReport& report);

}  // namespace penstock::app
