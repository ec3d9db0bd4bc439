// Counts the chunks of a layout without walking every row of every base pair.
#pragma once

#include <cstdint>

#include "transport/plan/layout.hpp"
#include "transport/plan/plan.hpp"

namespace penstock {

/// The chunks that a Cursor yields for `layout`, which measure() has accepted. Takes time per entry
/// and per base pair: the entries of one base pair are walked once and stand for all of them,
/// because which neighbours join does not depend on the base.
std::uint64_t count_chunks(const Layout& layout, const PlanLimits& limits);

}  // namespace penstock
