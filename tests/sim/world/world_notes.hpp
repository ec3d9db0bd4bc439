// How World takes notes, and the times that its nodes are configured with.
#pragma once

#include "tests/sim/world/world.hpp"

namespace penstock::sim {

inline constexpr Milliseconds kGraceMost{60};
inline constexpr Milliseconds kFence{1000};
inline constexpr Milliseconds kLeaseExtra{300};
inline constexpr Milliseconds kDelegationLate{50};
inline constexpr Milliseconds kDelegationMargin{300};
/// After this a terminal event is late, on a node that does not stand still.
inline constexpr Milliseconds kEndSlack{100};

template <class... Args>
void World::note(fmt::format_string<Args...> text, Args&&... args) {
  const auto us =
      std::chrono::duration_cast<std::chrono::microseconds>(network_.now() - began_).count();
  std::string line =
      fmt::format("{:>9} us  {}", us, fmt::format(text, std::forward<Args>(args)...));
  network_.mix(std::hash<std::string>()(line));
  history_.push_back(std::move(line));
}

template <class... Args>
void World::broke(fmt::format_string<Args...> text, Args&&... args) {
  failures_.push_back(fmt::format(text, std::forward<Args>(args)...));
  note("BROKEN: {}", failures_.back());
}

}  // namespace penstock::sim
