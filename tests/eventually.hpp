// Waiting in tests for what another thread or process does.
#pragma once

#include <chrono>
#include <thread>

namespace penstock {

/// Whether the condition comes true within `patience`, which only a failing test spends.
template <class Condition>
bool eventually(Condition condition,
                std::chrono::milliseconds patience = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace penstock
