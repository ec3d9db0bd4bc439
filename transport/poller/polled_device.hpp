// One device on a polling thread: its loop and the queues to and from those who use it.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "transport/poller/command_queue.hpp"
#include "transport/poller/event_queue.hpp"
#include "transport/poller/poller.hpp"

namespace penstock {

class PolledDevice {
 public:
  explicit PolledDevice(Poller::Device setup)
      : setup_(std::move(setup)), events_(setup_.doorbell) {}

  // -- the polling thread ------------------------------------------------------------------------
  Result<void> open();
  void close() { loop_.reset(); }
  /// Takes the commands that came, does one step and tells what happened. False: there was nothing
  /// to do.
  bool work();
  /// Takes the commands that came, and sends the messages among them.
  void send();
  PollerLoop& loop() { return *loop_; }
  /// Called before a command that may take long: a card is closed and opened.
  void before_long_ones(std::function<void()> call) { before_long_ones_ = std::move(call); }

  // -- any thread --------------------------------------------------------------------------------
  CommandQueue& commands() { return commands_; }
  EventQueue& events() { return events_; }
  const PollerOptions& options() const { return setup_.options; }
  /// Constant once the device is open.
  const std::vector<Nic*>& cards() const { return cards_; }
  const std::vector<const CardCounters*>& counters() const { return counters_; }

 private:
  bool run_commands();
  bool tell_events();

  Poller::Device setup_;
  CommandQueue commands_;
  EventQueue events_;
  std::vector<Nic*> cards_;
  std::vector<const CardCounters*> counters_;
  std::unique_ptr<PollerLoop> loop_;
  std::function<void()> before_long_ones_;
  std::vector<PollerCommand> taken_;
  std::vector<PollerEvent> untold_;
};

}  // namespace penstock
