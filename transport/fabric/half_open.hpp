// Closing an endpoint that accepts sockets, without leaving half-made connections behind.
#pragma once

#include <cstddef>
#include <span>

#include "transport/fabric/nic.hpp"

namespace penstock {

/// libfabric's tcp provider, between accepting a socket and reading its connection request, keeps a
/// pointer to the endpoint that accepted it, and closing that endpoint does not take it back: a
/// stray connection that speaks (or hangs up) later would reach freed memory. So, before an
/// endpoint is closed, its listening socket and every socket that was accepted on it are shut down,
/// and the provider's progress lets go of them. Connections of the endpoint end as well, as closing
/// it would have done.
///
/// `address` is the endpoint's own. Returns how many sockets were shut down; run progress
/// afterwards.
std::size_t shut_down_accepted(const FabricAddress& address);

}  // namespace penstock
