// The service's log: spdlog, with a limit on repetition, so that ten thousand failures a second do
// not write ten thousand lines.
#pragma once

#include <cstdint>
#include <string>

#include "transport/error.hpp"

namespace penstock {

struct LogOptions {
  std::string level = "info";
  std::string file;  // "": standard error
  bool json = false;
  /// Lines per second that differ in nothing but numbers; the rest is counted and told once.
  std::uint32_t repeat_per_s = 10;
};

/// Makes the process's default logger.
Result<void> start_log(const LogOptions& options);

}  // namespace penstock
