#include "actors/membership/resolver.hpp"

#include <netdb.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

namespace penstock {
namespace {

constexpr std::size_t kMostAtOnce = 8;
constexpr std::size_t kMostAddresses = 1024;

struct HostAndPort {
  std::string host;
  std::string port;
};

/// Of "tcp://host:port" with a host that is a name or address; "" where there is nothing to look
/// up.
HostAndPort parts_of(const std::string& endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  const std::size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(kTcp) || colon < kTcp.size()) return {};
  std::string host = endpoint.substr(kTcp.size(), colon - kTcp.size());
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {host, endpoint.substr(colon + 1)};
}

std::vector<std::string> endpoints_of(const HostAndPort& seed, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(seed.host.c_str(), nullptr, &hints, &found);
  if (failed != 0) {
    if ((flags & AI_NUMERICHOST) == 0)
      spdlog::debug("gossip: '{}' does not resolve now: {}", seed.host, ::gai_strerror(failed));
    return {};
  }
  std::vector<std::string> endpoints;
  for (const addrinfo* one = found; one != nullptr && endpoints.size() < kMostAddresses;
       one = one->ai_next) {
    char address[NI_MAXHOST];
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, address, sizeof(address), nullptr, 0,
                      NI_NUMERICHOST) != 0)
      continue;
    std::string endpoint = one->ai_family == AF_INET6
                               ? fmt::format("tcp://[{}]:{}", address, seed.port)
                               : fmt::format("tcp://{}:{}", address, seed.port);
    if (std::find(endpoints.begin(), endpoints.end(), endpoint) == endpoints.end())
      endpoints.push_back(std::move(endpoint));
  }
  ::freeaddrinfo(found);
  return endpoints;
}

}  // namespace

struct Resolver::Shared {
  std::mutex mutex;
  Found found;  // empty: the resolver is gone
  std::set<std::string> under_way;
};

Resolver::Resolver(Found found) : shared_(std::make_shared<Shared>()) {
  shared_->found = std::move(found);
}

Resolver::~Resolver() {
  const std::lock_guard lock(shared_->mutex);
  shared_->found = nullptr;
}

void Resolver::look_up(const std::string& seed) {
  const HostAndPort parts = parts_of(seed);
  if (parts.host.empty() || !endpoints_of(parts, AI_NUMERICHOST).empty())
    return shared_->found(seed, {seed});
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->under_way.size() >= kMostAtOnce || !shared_->under_way.insert(seed).second) return;
  }
  try {
    std::thread([shared = shared_, seed, parts] {
      auto endpoints = endpoints_of(parts, 0);
      const std::lock_guard lock(shared->mutex);
      shared->under_way.erase(seed);
      if (shared->found) shared->found(seed, std::move(endpoints));
    }).detach();
  } catch (const std::system_error& e) {
    spdlog::warn("gossip: no thread to look '{}' up: {}", seed, e.what());
    const std::lock_guard lock(shared_->mutex);
    shared_->under_way.erase(seed);
  }
}

}  // namespace penstock
