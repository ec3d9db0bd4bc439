#include "transport/fabric/interfaces.hpp"

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>

namespace penstock {
namespace {

const sockaddr_in& as_v4(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in&>(address);
}
const sockaddr_in6& as_v6(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in6&>(address);
}

bool is_link_local(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return (ntohl(as_v4(address).sin_addr.s_addr) >> 16) == 0xa9fe;  // 169.254/16
  return IN6_IS_ADDR_LINKLOCAL(&as_v6(address).sin6_addr);
}

/// "eth0:1" is a name for another address of eth0.
std::string_view device_of(const InterfaceAddress& entry) {
  return std::string_view(entry.name).substr(0, entry.name.find(':'));
}

std::vector<std::string> describe(const std::vector<InterfaceAddress>& all) {
  std::vector<std::string> words;
  for (const auto& each : all) words.push_back(each.name + " " + each.address);
  return words;
}

}  // namespace

std::string format_address(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
    return text;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  std::string result = text;
  if (v6->sin6_scope_id != 0) {
    char zone[IF_NAMESIZE] = "";
    result += '%';
    result += if_indextoname(v6->sin6_scope_id, zone) ? std::string(zone)
                                                      : std::to_string(v6->sin6_scope_id);
  }
  return result;
}

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    InterfaceAddress entry;
    entry.name = each->ifa_name;
    entry.ipv6 = family == AF_INET6;
    std::memcpy(&entry.socket_address, each->ifa_addr,
                entry.ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    entry.address = format_address(each->ifa_addr);
    entry.up = (each->ifa_flags & IFF_UP) && (each->ifa_flags & IFF_RUNNING);
    entry.loopback = each->ifa_flags & IFF_LOOPBACK;
    entry.link_local = is_link_local(entry.socket_address);
    all.push_back(std::move(entry));
  }
  return all;
}

std::vector<InterfaceAddress> usable_addresses(const std::vector<InterfaceAddress>& all) {
  auto collect = [&](bool loopback) {
    std::vector<InterfaceAddress> usable;
    for (const bool ipv6 : {false, true}) {
      for (const auto& each : all) {
        if (each.ipv6 != ipv6 || each.loopback != loopback || !each.up || each.link_local ||
            each.name.starts_with("docker"))
          continue;
        // A second address makes no second card. And bridges and aliases may carry one address
        // twice: peers could not tell the cards apart.
        const bool again = std::any_of(usable.begin(), usable.end(), [&](const auto& kept) {
          return device_of(kept) == device_of(each) ||
                 same_address(kept.socket_address, each.socket_address);
        });
        if (!again) usable.push_back(each);
      }
    }
    return usable;
  };
  auto usable = collect(false);
  return usable.empty() ? collect(true) : usable;
}

Result<sockaddr_storage> parse_address(const std::string& text) {
  std::string body = text;
  if (body.size() >= 2 && body.front() == '[' && body.back() == ']')
    body = body.substr(1, body.size() - 2);
  sockaddr_storage result{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(result);
  if (inet_pton(AF_INET, body.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    return result;
  }
  const auto percent = body.find('%');
  const std::string zone = percent == std::string::npos ? "" : body.substr(percent + 1);
  if (percent != std::string::npos) body.resize(percent);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(result);
  if (inet_pton(AF_INET6, body.c_str(), &v6.sin6_addr) != 1)
    return fail(ErrorCode::kInvalidArgument,
                "'{}' is not a numeric IPv4 or IPv6 address (give it without host name and port)",
                text);
  v6.sin6_family = AF_INET6;
  if (percent != std::string::npos) {
    v6.sin6_scope_id = if_nametoindex(zone.c_str());
    if (v6.sin6_scope_id == 0)
      return fail(ErrorCode::kInvalidArgument, "'{}': no interface is named '{}'", text, zone);
  }
  return result;
}

bool same_address(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) return as_v4(a).sin_addr.s_addr == as_v4(b).sin_addr.s_addr;
  if (std::memcmp(&as_v6(a).sin6_addr, &as_v6(b).sin6_addr, sizeof(in6_addr)) != 0) return false;
  const auto zone_a = as_v6(a).sin6_scope_id;
  const auto zone_b = as_v6(b).sin6_scope_id;
  return zone_a == 0 || zone_b == 0 || zone_a == zone_b;
}

InterfaceDevice interface_device(const std::string& name) {
  InterfaceDevice device;
  const std::filesystem::path base = std::filesystem::path("/sys/class/net") / name;
  double megabits = 0;
  if (std::ifstream(base / "speed") >> megabits && megabits > 0) device.link_gbps = megabits / 1000;
  int node = -1;
  if (std::ifstream(base / "device" / "numa_node") >> node) device.numa_node = node;
  std::error_code ignored;
  const auto target = std::filesystem::read_symlink(base / "device", ignored);
  // Only PCI devices are named "dddd:bb:dd.f"; virtual ones have other names.
  const std::string bus = target.filename().string();
  if (bus.size() == 12 && bus[4] == ':' && bus[7] == ':' && bus[10] == '.') device.bus = bus;
  return device;
}

Result<InterfaceAddress> choose_address(const std::vector<InterfaceAddress>& all,
                                        const std::string& domain, const std::string& address) {
  if (!address.empty()) {
    auto wanted = parse_address(address);
    if (!wanted) return tl::unexpected(wanted.error());
    for (const auto& each : all) {
      if (!same_address(each.socket_address, *wanted)) continue;
      if (!domain.empty() && each.name != domain) continue;
      if (!each.up)
        return fail(ErrorCode::kNotFound, "address {} is on interface {}, which is down", address,
                    each.name);
      return each;
    }
    return fail(ErrorCode::kNotFound, "no interface{} carries address {}; there are: {}",
                domain.empty() ? "" : " named " + domain, address, fmt::join(describe(all), ", "));
  }
  if (domain.empty()) {
    const auto usable = usable_addresses(all);
    if (!usable.empty()) return usable.front();
    return fail(ErrorCode::kNotFound, "no network interface is up; there are: {}",
                fmt::join(describe(all), ", "));
  }
  for (const bool ipv6 : {false, true})
    for (const auto& each : all)
      if (each.name == domain && each.ipv6 == ipv6 && each.up && !each.link_local) return each;
  return fail(ErrorCode::kNotFound,
              "no interface named {} is up with an address of its own; there are: {}", domain,
              fmt::join(describe(all), ", "));
}

}  // namespace penstock
