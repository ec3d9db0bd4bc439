// The requests that have been sent and not been answered. One thread. Not installed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/cpp/transfer_state.hpp"
#include "client/cpp/wire.hpp"

namespace penstock::client {

/// What a good reply to a request for transfers gives.
struct Ids {
  std::vector<std::uint64_t> list;
};
/// The body of a good reply, or what went wrong.
using Outcome = std::variant<Json, Ids, Error>;

struct Request {
  std::uint64_t id = 0;
  std::string operation{};
  Message message{};
  std::uint32_t timeout_ms = 0;
  /// Asked twice it does the same: sent again after a lost connection.
  bool repeatable = false;
  bool sent = false;
  std::function<void(const Outcome&)> done{};  // called once, on the client's thread
};

class PendingRequests {
 public:
  /// Returns it, valid until it is taken.
  Request& add(Request request, Clock::time_point now);
  std::optional<Request> take(std::uint64_t id);
  std::vector<Request> take_expired(Clock::time_point now);
  std::vector<Request> take_all();
  /// Those that were sent and must not be sent again.
  std::vector<Request> take_unanswerable();
  std::optional<Clock::time_point> next_deadline() const;
  /// What a new connection is to carry, in the order of the calls: not sent yet, or repeatable.
  std::vector<Request*> to_send();

 private:
  using Deadline = std::pair<Clock::time_point, std::uint64_t>;
  struct Pending {
    Request request;
    Clock::time_point deadline;
  };

  std::map<std::uint64_t, Pending> pending_;
  std::set<Deadline> deadlines_;
};

}  // namespace penstock::client
