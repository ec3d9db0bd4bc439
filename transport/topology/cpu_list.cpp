#include "transport/topology/cpu_list.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

std::string format_cpus(std::vector<int> cpus) {
  if (cpus.empty()) return "none";
  std::sort(cpus.begin(), cpus.end());
  std::string text;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] <= cpus[last] + 1) ++last;
    text += text.empty() ? "" : ",";
    text += cpus[first] == cpus[last] ? fmt::format("{}", cpus[first])
                                      : fmt::format("{}-{}", cpus[first], cpus[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace penstock
