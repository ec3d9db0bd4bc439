// PCI bus ids, in the one spelling that Penstock compares: "0000:4f:00.0".
#pragma once

#include <string>
#include <string_view>

#include "transport/error.hpp"

namespace penstock {

/// Brings the spellings of the trade to one: "4f:00.0", "0000:4F:00.0" and CUDA's
/// "00000000:4F:00.0" all become "0000:4f:00.0". Anything else is kInvalidArgument.
Result<std::string> normal_bus_id(std::string_view text);

std::string format_bus_id(unsigned domain, unsigned bus, unsigned slot, unsigned function);

}  // namespace penstock
