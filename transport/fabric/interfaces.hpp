// The machine's network interfaces and their IP addresses, as getifaddrs tells them.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "transport/error.hpp"

namespace penstock {

struct InterfaceAddress {
  std::string name;     // "eth0"
  std::string address;  // numeric; a link-local one carries its zone: "fe80::1%eth0"
  sockaddr_storage socket_address{};
  bool up = false;
  bool loopback = false;
  bool link_local = false;
  bool ipv6 = false;
};

std::vector<InterfaceAddress> interface_addresses();

/// Those worth advertising, one of each interface, in the order in which they are preferred: up,
/// not docker's, not link-local, no address twice, IPv4 before IPv6. Loopback only when nothing
/// else is left.
std::vector<InterfaceAddress> usable_addresses(const std::vector<InterfaceAddress>& all);

/// Parses a numeric IPv4 or IPv6 address, the latter with an optional zone ("fe80::1%eth0") and
/// optional brackets. kInvalidArgument when it is neither: names and ports are not accepted.
Result<sockaddr_storage> parse_address(const std::string& text);

/// Same family and address (and zone, where both have one); ports are not compared.
bool same_address(const sockaddr_storage& a, const sockaddr_storage& b);

/// Numeric, without port.
std::string format_address(const sockaddr* address);

/// What sysfs says about an interface's card; empty or -1 or 0 where it says nothing.
struct InterfaceDevice {
  std::string bus;  // "0000:4f:00.0"
  int numa_node = -1;
  double link_gbps = 0;
};
InterfaceDevice interface_device(const std::string& name);

/// The address that a card request means: the one given, which must be on an interface (and on
/// `domain` when that is given too), or the domain's first usable one, or the machine's.
Result<InterfaceAddress> choose_address(const std::vector<InterfaceAddress>& all,
                                        const std::string& domain, const std::string& address);

}  // namespace penstock
