// The steady clock of all deadlines. Pure logic is given the time, never asks for it, so that tests
// and the simulation drive it.
#pragma once

#include <chrono>

namespace penstock {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Milliseconds = std::chrono::milliseconds;

}  // namespace penstock
