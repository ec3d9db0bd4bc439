// What a seed makes go wrong in the simulated cluster, and to whom. All of it follows from the
// seed.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/poller/command.hpp"

namespace penstock::sim {

struct ClusterWeather {
  explicit ClusterWeather(std::uint64_t seed);

  std::size_t nodes = 3;
  /// Nodes that things happen to. What two others do between them must succeed.
  std::vector<bool> victim;
  std::vector<std::size_t> cards;  // by node
  std::vector<bool> on_gpu;
  FenceKind fence = FenceKind::kReopenInbound;
  std::size_t transfers = 60;
  std::size_t most_pages = 12;
  bool warm_up = false;
  bool late_node = false;  // the last one starts later

  // Chances. Those with a star concern victims only.
  double message_loss = 0;  // *
  double gossip_loss = 0;   // *
  double failure = 0;       // * per operation
  double late = 0.5;        // a write that failed or was cut off lands all the same
  double held = 0;          // of those that are lost: they come late
  double duplicate = 0;     // of fabric messages
  double gossip_duplicate = 0;
  double straggler = 0;  // of gossip frames
  double cancel = 0.1;
  double hurry = 0.1;         // a deadline that cannot be kept
  double stale_epoch = 0.03;  // the client names an epoch that was
  double any_epoch = 0.3;     // the client names none
  double stream = 0.15;       // it is one, of several parts
  double elsewhere = 0.15;    // another node is asked to carry it out

  // How often each happens, to victims.
  std::size_t card_faults = 0;  // dies, stands still, fails for a while, is slow
  std::size_t crashes = 0;
  std::size_t drains = 0;
  std::size_t cuts = 0;  // between two nodes, or one and all others; one way or both
  std::size_t pauses = 0;
  std::size_t releases = 0;
  std::size_t clock_jumps = 0;
  std::size_t garbage = 0;  // frames and messages that are none; to anybody
};

}  // namespace penstock::sim
