// Checks of network names in the configuration. Nothing here resolves or connects.
#pragma once

#include <string>
#include <string_view>

#include "transport/error.hpp"

namespace penstock {

enum class EndpointUse : unsigned char {
  kBind,     // the wildcard host "*" and the ports 0 and "*" (any free one) are fine
  kConnect,  // a host and a port that somebody can connect to
};

/// "tcp://host:port" (IPv6 in brackets) or, where `allow_ipc`, "ipc://path".
Result<void> check_endpoint(std::string_view endpoint, EndpointUse use, bool allow_ipc);

/// Whether nobody but this machine reaches a good endpoint: ipc, the loopback addresses, localhost.
bool is_local(std::string_view endpoint);

/// A host name or numeric address and nothing else: no scheme, no port, no brackets.
Result<void> check_host(std::string_view host);

/// A numeric IPv4 or IPv6 address, IPv6 with a zone where it needs one ("fe80::1%eth0"); no port.
Result<void> check_numeric_address(std::string_view address);

}  // namespace penstock
