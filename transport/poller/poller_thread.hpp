// The polling thread of one or several devices: pinned, the only one that touches their cards, and
// asleep while none of them has anything to do.
#pragma once

#include <atomic>
#include <chrono>
#include <ctime>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "transport/poller/polled_device.hpp"
#include "transport/poller/sleeper.hpp"

namespace penstock {

class PollerThread {
 public:
  /// Starts the thread and waits until the cards of all devices are open, or all are closed again.
  static Result<std::shared_ptr<PollerThread>> start(
      Poller::Thread setup, std::vector<std::shared_ptr<PolledDevice>> devices);
  /// After every device was closed.
  ~PollerThread();

  /// Any thread, after a command was pushed to one of the devices.
  void wake() { sleeper_->wake(); }
  /// Closes the device's cards, on the thread, and returns when that is done. The others go on.
  void close(PolledDevice& device);
  /// CPU time so far, divided by the number of devices that started with it.
  std::chrono::nanoseconds cpu_time_per_device() const;
  PollerUsage usage() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Leaving {
    PolledDevice* device;
    std::promise<void> closed;
  };

  PollerThread(std::vector<std::shared_ptr<PolledDevice>> devices, std::unique_ptr<Sleeper> sleeper)
      : sleeper_(std::move(sleeper)),
        devices_(std::move(devices)),
        started_with_(devices_.size()) {}

  void run(const Poller::Thread& setup, std::promise<Result<void>> opened);
  Result<void> open_devices(const Poller::Thread& setup);
  void close_devices();
  void watch_cards();
  void let_go();
  void poll_until_all_left();
  bool tidy();
  bool work();
  bool all_idle();
  bool all_quiet();
  std::optional<Clock::time_point> next_retry();
  bool called();
  Clock::time_point account(std::atomic<Clock::rep>& to, Clock::time_point since);
  std::chrono::nanoseconds cpu_time() const;

  std::unique_ptr<Sleeper> sleeper_;
  std::vector<std::shared_ptr<PolledDevice>> devices_;  // those that did not leave
  std::shared_ptr<SideWork> side_work_;
  std::size_t started_with_;
  std::chrono::microseconds spin_{0};  // the longest of the devices'
  std::vector<Nic*> untidy_;           // cards whose tidying goes on
  bool yields_ = false;                // as any of the devices wants
  std::mutex mutex_;
  std::vector<Leaving> leaving_;
  std::atomic<bool> somebody_leaves_{false};
  clockid_t cpu_clock_{};
  std::string name_;
  Clock::time_point started_ = Clock::now();
  // Written by the thread alone.
  std::atomic<Clock::rep> busy_{0};
  std::atomic<Clock::rep> asleep_{0};
  std::thread thread_;
};

}  // namespace penstock
