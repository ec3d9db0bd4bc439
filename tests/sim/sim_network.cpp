#include "tests/sim/sim_network.hpp"

namespace penstock::sim {

void SimNetwork::run_until(Time limit) {
  while (!due_.empty() && due_.begin()->first <= limit) {
    auto first = due_.begin();
    now_ = std::max(now_, first->first);
    const auto action = std::move(first->second);
    due_.erase(first);
    mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
    action();
  }
}

void SimNetwork::advance(Duration by) {
  const Time limit = now_ + by;
  run_until(limit);
  now_ = limit;
}

bool SimNetwork::advance_to_next() {
  if (due_.empty()) return false;
  run_until(due_.begin()->first);
  return true;
}

void SimNetwork::after(Duration after, std::function<void()> action) {
  due_.emplace(now_ + after, std::move(action));
}

bool SimNetwork::chance(double probability) {
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

std::uint64_t SimNetwork::below(std::uint64_t limit) {
  const std::uint64_t drawn = std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random_);
  mix(drawn);
  return drawn;
}

std::uint64_t SimNetwork::new_endpoint(SimNic* nic, Role role, std::uint64_t address) {
  if (address == 0) address = next_number_++;
  endpoints_[address] = {nic, role};
  return address;
}

}  // namespace penstock::sim
