// Which clients must be heard from time to time, and who has not been. Pure.
#pragma once

#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/clock.hpp"
#include "actors/gateway/gateway.hpp"

namespace penstock {

class Leases {
 public:
  /// From now on the client is to be heard at least so often; 0: no more.
  void grant(const ClientId& client, Milliseconds length, TimePoint now) {
    if (const auto found = leases_.find(client); found != leases_.end()) {
      looks_.erase({found->second.look, client});
      leases_.erase(found);
    }
    if (length.count() == 0) return;
    leases_[client] = {length, now + length, now + length};
    looks_.emplace(now + length, client);
  }
  void heard(const ClientId& client, TimePoint now) {
    const auto found = leases_.find(client);
    if (found != leases_.end()) found->second.until = now + found->second.length;
  }
  /// When expired() is due, to look at one of them; TimePoint::max() when nobody has a lease.
  TimePoint next() const { return looks_.empty() ? TimePoint::max() : looks_.begin()->first; }
  /// Takes out those whose time is over. `due` is when this was to be called: where it comes much
  /// later, this process stood still, and what its clients said meanwhile is not read yet: all
  /// leases begin anew.
  std::vector<ClientId> expired(TimePoint due, TimePoint now) {
    if (now - due > kStoodStill)
      for (auto& [client, lease] : leases_) lease.until = now + lease.length;
    std::vector<ClientId> gone;
    while (!looks_.empty() && looks_.begin()->first <= now) {
      const ClientId client = looks_.begin()->second;
      looks_.erase(looks_.begin());
      Lease& lease = leases_.at(client);
      lease.look = lease.until;
      if (lease.until <= now) {
        gone.push_back(client);
        leases_.erase(client);
      } else {
        looks_.emplace(lease.look, client);
      }
    }
    return gone;
  }

 private:
  static constexpr Milliseconds kStoodStill{500};
  struct Lease {
    Milliseconds length;
    TimePoint until;
    TimePoint look;  // its place in looks_: not moved when it is heard, which is often
  };
  std::unordered_map<ClientId, Lease> leases_;
  std::set<std::pair<TimePoint, ClientId>> looks_;
};

}  // namespace penstock
