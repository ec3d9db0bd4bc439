// The node's events in order, the last of them kept, and who wants which. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/gateway/gateway.hpp"
#include "transport/error.hpp"

namespace penstock {

enum class Topic : unsigned char { kTransfers, kNotify, kMembers };

class EventLog {
 public:
  using Send = std::function<void(const ClientId&, std::vector<std::uint8_t>)>;

  EventLog(std::size_t keep, Send send) : keep_(keep), send_(std::move(send)) {}

  /// The sequence that the next event will have; events start at 1.
  std::uint64_t next() const { return next_; }

  /// Keeps the event, sends it to the topic's subscribers, and sets its "v" and "seq".
  void publish(Topic topic, nlohmann::json event);
  /// One that is msgpack with the sequence next(): that of a transfer, which is sent to `owner`,
  /// its client, in any case.
  void publish_packed(Topic topic, std::vector<std::uint8_t> event, const ClientId* owner);

  /// Replaces the client's topics. Kept events after `since` of these topics are sent at once.
  /// kInvalidArgument names an unknown topic. Returns the newest sequence.
  Result<std::uint64_t> subscribe(const ClientId& client, const std::vector<std::string>& topics,
                                  std::optional<std::uint64_t> since);
  void unsubscribe(const ClientId& client) { subscribers_.erase(client); }
  std::size_t subscribers() const { return subscribers_.size(); }

 private:
  struct Kept {
    std::uint64_t sequence;
    Topic topic;
    ClientId owner;
    std::vector<std::uint8_t> event;
  };
  std::size_t keep_;
  Send send_;
  std::uint64_t next_ = 1;
  std::deque<Kept> kept_;
  std::map<ClientId, std::set<Topic>> subscribers_;
};

}  // namespace penstock
