// The steps of `penstock bench --ladder`: what is switched on, in which order, and whether it can
// be on this machine. A new step is a new entry of the table in ladder_steps.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace penstock::app {

/// Each step keeps the settings of those before it; a key that is set again has the later value.
struct LadderStep {
  std::string name;
  std::string change;                               // in words
  std::vector<std::string> settings{};              // "section.key=value", of both services
  std::vector<std::vector<std::string>> by_node{};  // further ones of the first and second
  std::optional<std::string> skipped{};             // why it cannot be
};

/// Those of this machine and provider. A step whose key the service does not know is skipped too.
std::vector<LadderStep> ladder_steps(const std::string& provider);

}  // namespace penstock::app
