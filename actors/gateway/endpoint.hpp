// Looks at a ZeroMQ endpoint before it is bound, to say in words what the bind would only deny, and
// to keep it from taking away a socket file that somebody still serves.
#pragma once

#include <string>
#include <string_view>

#include "transport/error.hpp"

namespace penstock {

/// tcp://[::1]:5555 and the like.
bool is_ipv6_literal(std::string_view endpoint);

/// ipc://: the folder must exist, the path must fit and be free; a socket that nobody listens on is
/// removed. Other transports pass.
Result<void> prepare_endpoint(const std::string& endpoint);

/// Words for a failed bind; `error_number` is zmq_errno().
Error bind_error(const std::string& endpoint, int error_number);

}  // namespace penstock
