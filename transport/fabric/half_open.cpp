#include "transport/fabric/half_open.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <memory>

namespace penstock {
namespace {

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

}  // namespace

std::size_t shut_down_accepted(const FabricAddress& address) {
  sockaddr_storage own{};
  if (address.size() > sizeof own) return 0;
  std::memcpy(&own, address.data(), address.size());
  // The provider tells nobody its sockets; the kernel does.
  const std::unique_ptr<DIR, DirectoryCloser> directory(opendir("/proc/self/fd"));
  if (!directory) return 0;
  std::size_t count = 0;
  while (const dirent* entry = readdir(directory.get())) {
    const int fd = std::atoi(entry->d_name);
    sockaddr_storage local{};
    socklen_t size = sizeof local;
    if (fd < 3 || getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) != 0) continue;
    // Outgoing connections have ports of their own, so such a socket was accepted on it, or is the
    // listener.
    if (belongs(local, own) && shutdown(fd, SHUT_RDWR) == 0) ++count;
  }
  return count;
}

}  // namespace penstock
