#include "transport/fabric/half_open.hpp"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>

namespace penstock {
namespace {

/// A connection request (libfabric 1.17 to 2.x: struct ofi_ctrl_hdr and struct xnet_rdm_cm): who
/// said less asked for nothing.
constexpr std::uint64_t kConnectionRequestBytes = 40;

/// States of a socket in tcp_info, which the kernel's header for programs does not name (Linux,
/// include/net/tcp_states.h; glibc's header does, and lacks tcpi_bytes_received).
constexpr std::uint8_t kClosed = 7;
constexpr std::uint8_t kCloseWait = 8;
constexpr std::uint8_t kLastAck = 9;
constexpr std::uint8_t kListening = 10;
constexpr std::uint8_t kClosing = 11;

/// Whether a socket bound to `local` belongs to an endpoint that listens on `own`: same port, and
/// the same address unless the endpoint listens on any. Ports alone say nothing: the kernel gives
/// one out again for every other address of the machine, to another card or the request socket.
bool belongs(const sockaddr_storage& local, const sockaddr_storage& own) {
  if (local.ss_family != own.ss_family) return false;
  if (own.ss_family == AF_INET) {
    const auto& mine = reinterpret_cast<const sockaddr_in&>(own);
    const auto& its = reinterpret_cast<const sockaddr_in&>(local);
    return its.sin_port == mine.sin_port && (mine.sin_addr.s_addr == htonl(INADDR_ANY) ||
                                             its.sin_addr.s_addr == mine.sin_addr.s_addr);
  }
  if (own.ss_family == AF_INET6) {
    const auto& mine = reinterpret_cast<const sockaddr_in6&>(own);
    const auto& its = reinterpret_cast<const sockaddr_in6&>(local);
    return its.sin6_port == mine.sin6_port && (IN6_IS_ADDR_UNSPECIFIED(&mine.sin6_addr) ||
                                               IN6_ARE_ADDR_EQUAL(&its.sin6_addr, &mine.sin6_addr));
  }
  return false;
}

bool same_host(const sockaddr_storage& one, const sockaddr_storage& other) {
  if (one.ss_family != other.ss_family) return false;
  if (one.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(one).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(other).sin_addr.s_addr;
  return one.ss_family == AF_INET6 &&
         IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6&>(one).sin6_addr,
                            &reinterpret_cast<const sockaddr_in6&>(other).sin6_addr);
}

bool same_port(const sockaddr_storage& one, const sockaddr_storage& other) {
  // At the same place in both families.
  return reinterpret_cast<const sockaddr_in&>(one).sin_port ==
         reinterpret_cast<const sockaddr_in&>(other).sin_port;
}

/// False: no address of a socket.
bool read_address(const FabricAddress& address, sockaddr_storage& into) {
  if (address.size() < sizeof into.ss_family || address.size() > sizeof into) return false;
  std::memcpy(&into, address.data(), address.size());
  return into.ss_family == AF_INET || into.ss_family == AF_INET6;
}

/// Calls `treat` with every descriptor of this process; returns how often it said yes.
std::size_t for_each_descriptor(const std::function<bool(int)>& treat) {
  static std::mutex mutex;
  static auto& walk = *new DescriptorWalk;  // also for what ends after main() did
  const std::lock_guard lock(mutex);
  std::size_t count = 0;
  const auto look = [&](int fd) { count += treat(fd); };
  while (walk.next(1024, look)) continue;
  return count;
}

template <class Name>
bool name_of_socket(Name name, int fd, sockaddr_storage& address) {
  socklen_t size = sizeof address;
  return name(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
}

/// 0: there is none.
ino_t inode_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

/// What the kernel knows of a TCP socket; false: it is none, or the kernel is older than 4.1.
bool read_state(int fd, tcp_info& state) {
  socklen_t size = sizeof state;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &state, &size) == 0 &&
         size >= offsetof(tcp_info, tcpi_bytes_received) + sizeof state.tcpi_bytes_received;
}

/// Bytes that were read from the socket, or thrown away with it.
std::uint64_t bytes_read(int fd, const tcp_info& state) {
  // The other end's last word counts as a byte that came, and not as one that waits.
  const bool hung_up = state.tcpi_state == kCloseWait || state.tcpi_state == kLastAck ||
                       state.tcpi_state == kClosing || state.tcpi_state == kClosed;
  int waiting = 0;
  if (ioctl(fd, SIOCINQ, &waiting) != 0) waiting = 0;
  const auto left = static_cast<std::uint64_t>(waiting) + (hung_up ? 1 : 0);
  return state.tcpi_bytes_received - std::min<std::uint64_t>(left, state.tcpi_bytes_received);
}

}  // namespace

std::vector<OpenSocket> shut_down_accepted(const FabricAddress& address) {
  std::vector<OpenSocket> sockets;
  sockaddr_storage own{};
  if (!read_address(address, own)) return sockets;
  for_each_descriptor([&](int fd) {
    sockaddr_storage local{};
    // Outgoing connections have ports of their own, so such a socket was accepted on it, or is the
    // listener.
    if (!name_of_socket(getsockname, fd, local) || !belongs(local, own)) return false;
    sockets.push_back({fd, inode_of(fd)});
    return shutdown(fd, SHUT_RDWR) == 0;
  });
  return sockets;
}

void close_left(std::span<const OpenSocket> sockets) {
  for (const OpenSocket& each : sockets)
    if (each.inode != 0 && inode_of(each.fd) == each.inode) close(each.fd);
}

std::size_t shut_down_connected(const FabricAddress& from, const FabricAddress& to) {
  sockaddr_storage card{}, peer{};
  if (!read_address(from, card) || !read_address(to, peer)) return 0;
  return for_each_descriptor([&](int fd) {
    sockaddr_storage local{}, remote{};
    return name_of_socket(getpeername, fd, remote) && same_host(remote, peer) &&
           same_port(remote, peer) && name_of_socket(getsockname, fd, local) &&
           same_host(local, card) && shutdown(fd, SHUT_RDWR) == 0;
  });
}

std::size_t end_when_silent(const FabricAddress& address, const FabricAddress& from,
                            std::chrono::milliseconds silence) {
  sockaddr_storage own{}, peer{};
  if (!read_address(address, own) || !read_address(from, peer)) return 0;
  const auto milliseconds = static_cast<unsigned>(silence.count());
  return for_each_descriptor([&](int fd) {
    sockaddr_storage local{}, remote{};
    return name_of_socket(getpeername, fd, remote) && same_host(remote, peer) &&
           name_of_socket(getsockname, fd, local) && belongs(local, own) &&
           setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds) == 0;
  });
}

bool DescriptorWalk::next(std::size_t most, const std::function<void(int)>& treat) {
  if (!folder_) folder_.reset(opendir("/proc/self/fd"));
  if (!folder_) return false;
  for (std::size_t looked = 0; looked < most; ++looked) {
    const dirent* entry = readdir(folder_.get());
    if (entry == nullptr) {
      rewinddir(folder_.get());
      return false;
    }
    const int fd = std::atoi(entry->d_name);
    if (fd >= 3) treat(fd);
  }
  return true;
}

UnspokenConnections::Ended UnspokenConnections::look(std::size_t most,
                                                     std::span<const FabricAddress> addresses,
                                                     std::chrono::milliseconds silence,
                                                     Clock::time_point now) {
  std::vector<sockaddr_storage> own(addresses.size());
  std::size_t known = 0;
  for (const FabricAddress& address : addresses) known += read_address(address, own[known]);
  own.resize(known);
  Ended ended;
  ended.more = walk_.next(most, [&](int fd) { ended.connections += treat(fd, own, silence, now); });
  if (ended.more) return ended;
  std::erase_if(seen_, [this](const auto& each) { return each.second.walk != walk_number_; });
  ++walk_number_;
  return ended;
}

bool UnspokenConnections::treat(int fd, std::span<const sockaddr_storage> own,
                                std::chrono::milliseconds silence, Clock::time_point now) {
  sockaddr_storage local{};
  if (!name_of_socket(getsockname, fd, local) ||
      std::none_of(own.begin(), own.end(),
                   [&](const auto& address) { return belongs(local, address); }))
    return false;
  tcp_info state{};
  if (!read_state(fd, state) || state.tcpi_state == kListening ||
      bytes_read(fd, state) >= kConnectionRequestBytes)
    return false;
  const ino_t inode = inode_of(fd);
  Seen& seen = seen_[fd];
  if (seen.inode != inode) seen = {inode, now};
  seen.walk = walk_number_;
  if (now - seen.first < silence) return false;
  if (seen.shut_down) return close(fd) == 0;
  seen.shut_down = true;
  shutdown(fd, SHUT_RDWR);  // fails where the other end has reset it: then that is what is seen
  return true;
}

std::size_t bound_first_reads(const FabricAddress& address, std::chrono::microseconds patience) {
  sockaddr_storage own{};
  if (!read_address(address, own)) return 0;
  const timeval wait{patience.count() / 1'000'000, patience.count() % 1'000'000};
  return for_each_descriptor([&](int fd) {
    sockaddr_storage local{};
    tcp_info state{};
    return name_of_socket(getsockname, fd, local) && belongs(local, own) && read_state(fd, state) &&
           state.tcpi_state == kListening &&
           setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0;
  });
}

}  // namespace penstock
