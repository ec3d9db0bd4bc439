// A node's state as metrics for Prometheus, in its text format. docs/monitoring.md lists them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace penstock {

/// `everything` is what the node actor answers to AskWatched, `process` a process_report().
std::string exposition(const nlohmann::json& everything, const nlohmann::json& process);
inline constexpr const char* kExpositionType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace penstock
