// Closing an endpoint that accepts sockets, without leaving half-made connections behind.
#pragma once

#include <dirent.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/fabric/nic.hpp"

namespace penstock {

/// A socket of this process: the number may be another's by the time it is looked at again.
struct OpenSocket {
  int fd = -1;
  ino_t inode = 0;
};

/// libfabric's tcp provider, between accepting a socket and reading its connection request, keeps a
/// pointer to the endpoint that accepted it, and closing that endpoint does not take it back: a
/// stray connection that speaks (or hangs up) later would reach freed memory. So, before an
/// endpoint is closed, its listening socket and every socket that was accepted on it are shut down,
/// and the provider's progress lets go of them. Connections of the endpoint end as well, as closing
/// it would have done.
///
/// `address` is the endpoint's own. Returns the sockets that were shut down; run progress
/// afterwards, close the endpoint, and then close what the provider had forgotten (below).
std::vector<OpenSocket> shut_down_accepted(const FabricAddress& address);

/// Closes those that are still open. Only once nobody else can: their endpoint is closed.
void close_left(std::span<const OpenSocket> sockets);

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

/// The descriptors of this process, so many at a time: the provider tells nobody its sockets, the
/// kernel does. The folder stays open from the first call on: when it is needed most no descriptor
/// is left to open it with.
class DescriptorWalk {
 public:
  /// Calls `treat` with the next ones, `most` at most. False: there are no more, and the next call
  /// begins anew.
  bool next(std::size_t most, const std::function<void(int)>& treat);

 private:
  struct Closer {
    void operator()(DIR* folder) const { closedir(folder); }
  };
  std::unique_ptr<DIR, Closer> folder_;
};

/// Whoever connects to a listening endpoint of the provider costs it a descriptor, and it waits for
/// a first word without end; some of those who hang up without one, or stop in its middle, it
/// forgets, descriptor and all. So connections of which no connection request has been read
/// `silence` after they were first seen are shut down, whatever else came on them, which the
/// provider's next progress sees; those that are there still at a later look, after progress, it
/// has forgotten: they are closed. For the thread that runs the provider's progress.
class UnspokenConnections {
 public:
  using Clock = std::chrono::steady_clock;
  struct Ended {
    std::size_t connections = 0;  // shut down or closed
    bool more = false;            // descriptors to be looked at, before it begins anew
  };
  /// Looks at the next `most` descriptors for connections that were accepted on one of `addresses`:
  /// a microsecond each.
  Ended look(std::size_t most, std::span<const FabricAddress> addresses,
             std::chrono::milliseconds silence, Clock::time_point now = Clock::now());

 private:
  struct Seen {
    ino_t inode = 0;
    Clock::time_point first;
    bool shut_down = false;
    std::uint64_t walk = 0;  // the last in which it was there
  };
  bool treat(int fd, std::span<const sockaddr_storage> own, std::chrono::milliseconds silence,
             Clock::time_point now);

  DescriptorWalk walk_;
  std::uint64_t walk_number_ = 0;
  std::unordered_map<int, Seen> seen_;
};

/// The provider reads a connection request from the socket as it was accepted, which blocks: one
/// who sends the first half would hold the polling thread, and its locks, for as long as he likes.
/// Sockets whose handshake with `address` ends from now on wait for the other half for `patience`,
/// rounded up by two or three of the kernel's ticks; those that become connections never wait.
/// Returns how many listening sockets that concerns.
std::size_t bound_first_reads(const FabricAddress& address, std::chrono::microseconds patience);

}  // namespace penstock
