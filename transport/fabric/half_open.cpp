#include "transport/fabric/half_open.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace penstock {
namespace {

/// The header of a connection request (libfabric 1.17 to 2.x, struct ofi_ctrl_hdr): what is shorter
/// asked for nothing.
constexpr std::uint64_t kConnectionRequestBytes = 32;

/// States of a socket in tcp_info, which the kernel's header for programs does not name (Linux,
/// include/net/tcp_states.h; glibc's header does, and lacks tcpi_bytes_received).
constexpr std::uint8_t kEstablished = 1;
constexpr std::uint8_t kCloseWait = 8;
constexpr std::uint8_t kListening = 10;

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};

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

/// Calls `treat` with every descriptor of this process; returns how often it said yes. The provider
/// tells nobody its sockets; the kernel does. The directory stays open: when it is needed most
/// there is no descriptor left to open it with.
std::size_t for_each_descriptor(const std::function<bool(int)>& treat) {
  static std::mutex mutex;
  static std::unique_ptr<DIR, DirectoryCloser> directory;
  const std::lock_guard lock(mutex);
  if (!directory) directory.reset(opendir("/proc/self/fd"));
  if (!directory) return 0;
  rewinddir(directory.get());
  std::size_t count = 0;
  while (const dirent* entry = readdir(directory.get())) {
    const int fd = std::atoi(entry->d_name);
    if (fd >= 3 && treat(fd)) ++count;
  }
  return count;
}

template <class Name>
bool name_of_socket(Name name, int fd, sockaddr_storage& address) {
  socklen_t size = sizeof address;
  return name(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
}

/// What the kernel knows of a TCP socket; false: it is none.
bool read_state(int fd, tcp_info& state) {
  socklen_t size = sizeof state;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &state, &size) == 0;
}

}  // namespace

std::size_t shut_down_accepted(const FabricAddress& address) {
  sockaddr_storage own{};
  if (!read_address(address, own)) return 0;
  return for_each_descriptor([&](int fd) {
    sockaddr_storage local{};
    // Outgoing connections have ports of their own, so such a socket was accepted on it, or is the
    // listener.
    return name_of_socket(getsockname, fd, local) && belongs(local, own) &&
           shutdown(fd, SHUT_RDWR) == 0;
  });
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

std::size_t end_unspoken(std::span<const FabricAddress> addresses,
                         std::chrono::milliseconds silence) {
  std::vector<sockaddr_storage> own(addresses.size());
  for (std::size_t i = 0; i < own.size(); ++i)
    if (!read_address(addresses[i], own[i])) return 0;
  return for_each_descriptor([&](int fd) {
    sockaddr_storage local{};
    if (!name_of_socket(getsockname, fd, local) ||
        std::none_of(own.begin(), own.end(),
                     [&](const auto& address) { return belongs(local, address); }))
      return false;
    tcp_info state{};
    // Until it first says something, a socket's last word is its beginning.
    if (!read_state(fd, state) || state.tcpi_state == kListening ||
        state.tcpi_bytes_received >= kConnectionRequestBytes ||
        std::chrono::milliseconds(state.tcpi_last_data_recv) < silence)
      return false;
    const bool untouched = state.tcpi_state == kEstablished || state.tcpi_state == kCloseWait;
    return (untouched ? shutdown(fd, SHUT_RDWR) : close(fd)) == 0;
  });
}

}  // namespace penstock
