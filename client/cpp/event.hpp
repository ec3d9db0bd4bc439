// What the service tells without being asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "transfer.hpp"

namespace penstock::client {

/// A transfer with notify ended well: its last byte is visible on this node.
struct Notification {
  std::string from;            // the node that started the transfer
  std::uint64_t transfer = 0;  // its id there
  std::string region;          // the region here
  std::uint64_t bytes = 0;
  std::string data;          // as given in TransferSpec::notify
  std::uint64_t stream = 0;  // there, of which the transfer is a part; 0: of none
  std::uint32_t part = 0;
};

struct MemberChange {
  enum class Kind : unsigned char { kJoined, kDraining, kLeft, kDead };
  Kind kind = Kind::kJoined;
  std::string node;
  std::uint64_t incarnation = 0;
};

/// monostate: an event of a kind that this client does not know; see Event::json.
struct Event {
  std::uint64_t sequence = 0;  // rises within one life of the service
  std::string name;            // "transfer", "notify", "member_joined", ...
  std::variant<std::monostate, TransferResult, Notification, MemberChange> body;
  std::string json;  // the whole event; binary fields as arrays under "bytes"
};

using EventCallback = std::function<void(const Event&)>;

class SubscriptionState;

/// Calls back until it is destroyed; then no call is running or will come. Move-only.
class Subscription {
 public:
  Subscription() = default;
  explicit Subscription(std::shared_ptr<SubscriptionState> state);
  Subscription(Subscription&& other) noexcept;
  Subscription& operator=(Subscription&& other) noexcept;
  ~Subscription();

  void stop();

 private:
  std::shared_ptr<SubscriptionState> state_;
};

}  // namespace penstock::client
