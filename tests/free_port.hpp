// A TCP port of 127.0.0.1 for a service that a test starts, ends and starts again.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <random>
#include <set>
#include <stdexcept>

namespace penstock {

/// Free, and given out once. Below the ports that the kernel gives to connections (Linux: from
/// 32768 on): one of those would take it while the service is down, even a client that tries to
/// connect to it.
inline std::uint16_t free_port() {
  static std::mt19937 random(std::random_device{}());
  static std::set<std::uint16_t> given;
  std::uniform_int_distribution<std::uint16_t> ports(20'000, 32'000);
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const std::uint16_t port = ports(random);
    if (!given.insert(port).second) continue;
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const bool bound =
        ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(socket);
    if (bound) return port;
  }
  throw std::runtime_error("no free TCP port on 127.0.0.1");
}

}  // namespace penstock
