// Lists of hardware threads as people read them.
#pragma once

#include <string>
#include <vector>

namespace penstock {

/// "0-3,8" for {0, 1, 2, 3, 8}; "none" for an empty list. Sorts first.
std::string format_cpus(std::vector<int> cpus);

}  // namespace penstock
