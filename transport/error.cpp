#include "transport/error.hpp"

#include <array>

namespace penstock {
namespace {

constexpr std::array<std::string_view, 19> kNames = {
    "INVALID_ARGUMENT", "OUT_OF_RANGE",       "NOT_FOUND",   "ALREADY_EXISTS",    "BUSY",
    "DENIED",           "RESOURCE_EXHAUSTED", "UNSUPPORTED", "STALE_PEER",        "STALE_REGION",
    "PEER_UNREACHABLE", "PEER_LEFT",          "PEER_DEAD",   "DEADLINE_EXCEEDED", "CANCELLED",
    "DRAINING",         "PROVIDER",           "INTERNAL",    "EXECUTOR_DIED"};
static_assert(kNames.size() == static_cast<std::size_t>(ErrorCode::kExecutorDied) + 1);

}  // namespace

std::string_view name_of(ErrorCode code) { return kNames.at(static_cast<std::size_t>(code)); }

ErrorCode error_code_of(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<ErrorCode>(i);
  return ErrorCode::kInternal;
}

}  // namespace penstock
