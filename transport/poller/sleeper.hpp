// How a poller without work sleeps and who wakes it: a command, a card, or the time.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "transport/error.hpp"
#include "transport/fabric/nic.hpp"

namespace penstock {

class Sleeper {
 public:
  using Clock = std::chrono::steady_clock;

  static Result<std::unique_ptr<Sleeper>> make();
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  /// The cards whose wait descriptors wake the sleeper, in place of those before. `tick` bounds
  /// every sleep when one of them has none. The sleeper's thread, before the first sleep.
  void watch(const std::vector<Nic*>& cards, std::chrono::milliseconds tick);

  enum class Woken : unsigned char { kNever, kCommand, kCard, kTime };
  /// Sleeps until `until`, the tick, or something happens. kNever: a card wants to be polled first
  /// or `pending` was true after the sleeper was announced, so that its command cannot be missed.
  /// `expecting`: data may stream in, which makes a descriptor readable at every look for a reason.
  template <class Pending>
  Woken sleep(std::optional<Clock::time_point> until, bool expecting, Pending pending) {
    if (expecting) {
      readable_since_.reset();
      distrusted_until_.reset();
    }
    for (Nic* card : cards_)
      if (!card->may_wait()) return Woken::kNever;
    asleep_.store(true);
    if (pending()) {
      asleep_.store(false);
      return Woken::kNever;
    }
    const Woken woken = wait(until);
    asleep_.store(false);
    return woken;
  }

  /// Any thread, after the command was pushed: wakes the sleeper when it sleeps.
  void wake();

 private:
  explicit Sleeper(int event_fd) : event_fd_(event_fd) {}
  Woken wait(std::optional<Clock::time_point> until);

  int event_fd_;
  std::atomic<bool> asleep_{false};
  std::vector<Nic*> cards_;
  std::vector<pollfd> descriptors_;  // the event descriptor first
  std::chrono::milliseconds tick_{5};
  bool needs_tick_ = false;
  // Since then a descriptor was readable whenever it was looked at, though nothing was expected: it
  // wakes for nothing.
  std::optional<Clock::time_point> readable_since_;
  std::optional<Clock::time_point> distrusted_until_;
};

}  // namespace penstock
