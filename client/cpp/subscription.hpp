// Who wants to hear of which events. Not installed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "client/cpp/event.hpp"

namespace penstock::client {

class SubscriptionState {
 public:
  /// Events up to `floor` are not for this one.
  SubscriptionState(std::vector<std::string> topics, EventCallback callback, std::uint64_t floor)
      : topics_(std::move(topics)), callback_(std::move(callback)), floor_(floor) {}

  const std::vector<std::string>& topics() const { return topics_; }
  /// Calls back unless it is stopped, not interested, or has had this event.
  void deliver(const Event& event);
  /// Events up to `floor` were there before the subscription.
  void skip_to(std::uint64_t floor);
  /// The service started anew: its sequence starts again.
  void start_over();
  /// After it no call is running, unless the caller is that call.
  void stop();
  /// Waits for nobody: it is asked under the client's lock, which a running callback may want.
  bool stopped() const { return stopped_.load(); }

 private:
  bool wants(const Event& event) const;
  bool is_new(std::uint64_t sequence);

  const std::vector<std::string> topics_;
  const EventCallback callback_;
  std::recursive_mutex mutex_;  // held while calling back; the callback may stop()
  std::atomic<bool> stopped_{false};
  std::uint64_t floor_;
  // The service may repeat events to another subscription of ours while newer ones arrive, so the
  // highest sequence is not enough to tell the new from the known.
  std::set<std::uint64_t> seen_;
};

}  // namespace penstock::client
