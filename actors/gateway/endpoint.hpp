// Looks at an endpoint before it is bound, to say in words what the bind would only deny, and to
// keep it from taking away a socket file that somebody still serves.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "transport/error.hpp"

namespace penstock {

/// tcp://[::1]:5555 and the like.
bool is_ipv6_literal(std::string_view endpoint);

/// ipc://: the folder must exist, the path must fit and be free; a socket that nobody listens on is
/// removed. Other transports pass. `setting` says in the error where the endpoint comes from.
Result<void> prepare_endpoint(std::string_view setting, const std::string& endpoint);

/// While one lives, files that this process makes, sockets too, are for their owner alone. The mask
/// is the whole process's, so one at a time.
class OwnersOnly {
 public:
  OwnersOnly();
  ~OwnersOnly();
  OwnersOnly(const OwnersOnly&) = delete;
  OwnersOnly& operator=(const OwnersOnly&) = delete;

 private:
  mode_t before_;
};

/// Words for a failed bind; `error_number` is errno or zmq_errno().
Error bind_error(std::string_view setting, const std::string& endpoint, int error_number);

}  // namespace penstock
