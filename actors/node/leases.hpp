// Which clients must be heard from time to time, and who has not been. Pure.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "actors/clock.hpp"
#include "actors/gateway/gateway.hpp"

namespace penstock {

class Leases {
 public:
  /// From now on the client is to be heard at least so often; 0: no more.
  void grant(const ClientId& client, Milliseconds length, TimePoint now) {
    if (length.count() == 0)
      leases_.erase(client);
    else
      leases_[client] = {length, now + length};
  }
  void heard(const ClientId& client, TimePoint now) {
    const auto found = leases_.find(client);
    if (found != leases_.end()) found->second.until = now + found->second.length;
  }
  /// When expired() is due; TimePoint::max() when nobody has a lease.
  TimePoint next() const {
    TimePoint next = TimePoint::max();
    for (const auto& [client, lease] : leases_) next = std::min(next, lease.until);
    return next;
  }
  /// Takes out those whose time is over. `due` is when this was to be called: where it comes much
  /// later, this process stood still, and what its clients said meanwhile is not read yet: all
  /// leases begin anew.
  std::vector<ClientId> expired(TimePoint due, TimePoint now) {
    if (now - due > kStoodStill)
      for (auto& [client, lease] : leases_) lease.until = now + lease.length;
    std::vector<ClientId> gone;
    for (const auto& [client, lease] : leases_)
      if (lease.until <= now) gone.push_back(client);
    for (const ClientId& client : gone) leases_.erase(client);
    return gone;
  }

 private:
  static constexpr Milliseconds kStoodStill{500};
  struct Lease {
    Milliseconds length;
    TimePoint until;
  };
  std::unordered_map<ClientId, Lease> leases_;
};

}  // namespace penstock
