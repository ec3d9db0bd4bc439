#include "tests/sim/world/weather.hpp"

#include <random>

namespace penstock::sim {

ClusterWeather::ClusterWeather(std::uint64_t seed) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u + 1);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  const auto one_in = [&](std::uint64_t n) { return below(n) == 0; };

  nodes = 3 + below(6);
  victim.resize(nodes);
  if (one_in(5)) {
    victim.assign(nodes, true);
  } else {
    const std::size_t most = nodes - 2;
    for (std::size_t left = 1 + below(most); left > 0; --left) victim[below(nodes)] = true;
  }
  for (std::size_t i = 0; i < nodes; ++i) {
    cards.push_back(1 + below(one_in(3) ? 4 : 2));
    on_gpu.push_back(one_in(8));
  }
  if (one_in(3)) fence = FenceKind::kRekey;
  transfers = 20 + below(80);
  most_pages = one_in(4) ? 40 : 12;
  warm_up = nodes <= 4 && one_in(8);
  late_node = one_in(3);
  late = one_in(3) ? 0.9 : 0.4;
  const double losses[] = {0, 0, 0.02, 0.2};
  message_loss = losses[below(4)];
  gossip_loss = losses[below(4)];
  if (one_in(3)) failure = one_in(2) ? 0.003 : 0.02;
  if (one_in(2)) duplicate = one_in(2) ? 0.02 : 0.2;
  if (one_in(2)) gossip_duplicate = 0.1;
  if (one_in(3)) straggler = 0.01;
  if (one_in(4)) cancel = 0.4;
  if (one_in(4)) hurry = 0.4;

  const auto some = [&](std::uint64_t chance, std::uint64_t most) {
    return one_in(chance) ? 1 + below(most) : 0;
  };
  card_faults = some(2, 5);
  crashes = some(2, 4);
  drains = some(4, 2);
  cuts = some(3, 3);
  pauses = some(4, 3);
  releases = some(3, 4);
  clock_jumps = some(3, 3);
  garbage = some(4, 40);
  if (one_in(2)) held = 0.5;
}

}  // namespace penstock::sim
