// Closing an endpoint that accepts sockets, without leaving half-made connections behind.
#pragma once

#include <chrono>
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

/// The provider keeps its connection to a peer that is removed, and takes it up again when the same
/// address is added: after a silence it would wait for the kernel's next retransmission, which may
/// be a minute away. So connections that were made from the card's address `from` (whatever the
/// port) to `to` are shut down; the provider's next progress lets go of them. Returns how many.
std::size_t shut_down_connected(const FabricAddress& from, const FabricAddress& to);

/// The same for connections that the peer made: accepted on `address`, from the host of `from`. Its
/// port is unknown, and other peers may live on that host, so they end only when something that was
/// sent on them is not acknowledged for so long (TCP_USER_TIMEOUT): of those that live, only a
/// stopped process with a full window does that. Returns how many connections that concerns.
std::size_t end_when_silent(const FabricAddress& address, const FabricAddress& from,
                            std::chrono::milliseconds silence);

/// Whoever connects to a listening endpoint of the provider costs it a descriptor, and it waits for
/// a first word without end; some of those who hang up without one it forgets, descriptor and all.
/// So connections that were accepted on one of `addresses` and have not said a connection request's
/// worth in `silence` are shut down, which the provider's next progress sees; those that are still
/// there a call later, after progress, nobody but us knows: they are closed. Only on the thread
/// that runs the provider's progress. Returns how many.
std::size_t end_unspoken(std::span<const FabricAddress> addresses,
                         std::chrono::milliseconds silence);

}  // namespace penstock
