// The polling loop of one device: one thread, no locks, all cards of the device. Takes commands,
// posts lazily within its windows, counts completions, reports events.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/fabric/nic.hpp"
#include "transport/poller/command.hpp"
#include "transport/poller/event.hpp"
#include "transport/poller/side_work.hpp"

namespace penstock {

struct PollerOptions {
  /// Room per card and per link: what may be posted at once. About one or two bandwidth-delay
  /// products: providers that queue without bound never push back by themselves. The
  /// last chunk may reach beyond a window of bytes.
  std::uint64_t card_window_bytes = 16u << 20;
  std::uint32_t card_window_operations = 256;
  std::uint64_t link_window_bytes = 8u << 20;
  std::uint32_t link_window_operations = 128;
  /// Counted writes out per link at once (the receiver's queues hold them all).
  std::uint32_t immediate_credits = 128;
  /// A link with operations out and no completion for so long is told as LinkStill. 0: never.
  std::chrono::milliseconds card_stall{500};
  /// How long to spin without work before sleeping.
  std::chrono::microseconds spin{50};
  /// Meanwhile the core is offered to others at every look, while nothing but messages comes and
  /// goes: where cores are few, who answers may be waiting for this one.
  bool yields = false;
  /// Sleep between looks where a card has no usable wait object.
  std::chrono::milliseconds idle_tick{5};
};

/// Counters that any thread may read while the poller runs.
struct CardCounters {
  std::atomic<std::uint64_t> written_bytes{0};  // completed, ours
  std::atomic<std::uint64_t> read_bytes{0};
  std::atomic<std::uint64_t> operations{0};
  std::atomic<std::uint64_t> again{0};  // times the provider said EAGAIN
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> messages_sent{0};
  std::atomic<std::uint64_t> messages_received{0};
  std::atomic<std::uint64_t> stray_immediates{0};  // arrived for nobody: dropped
  std::atomic<std::uint64_t> link_failures{0};     // times that a link of the card went bad
  std::atomic<std::uint64_t> failovers{0};         // transfers that lost a way here and had others
  std::atomic<std::uint64_t> reopened{0};          // its outbound endpoint, by force
  std::atomic<std::uint64_t> credits_sent{0};      // slots of ours that peers may use again
  std::atomic<std::uint64_t> credits_received{0};  // slots of theirs that we may
  // Out right now, as of the last step.
  std::atomic<std::uint64_t> posted_bytes{0};
  std::atomic<std::uint64_t> posted_operations{0};
  std::atomic<std::uint64_t> immediates_out{0};
};

/// What a polling thread did with its time so far. What is in neither, it spent looking at idle
/// cards.
struct PollerUsage {
  std::string thread;                  // its name: devices may share one
  std::chrono::nanoseconds busy{0};    // in rounds in which something happened
  std::chrono::nanoseconds asleep{0};  // waiting to be woken
  std::chrono::nanoseconds alive{0};
  std::chrono::nanoseconds cpu{0};
};

/// The loop itself, without a thread: step() once is one round. The simulation drives this.
class PollerLoop {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Clock = std::function<TimePoint()>;

  /// `clock` is asked while links are left alone because they take nothing, and now and then while
  /// operations are out or end.
  PollerLoop(std::vector<std::unique_ptr<Nic>> nics, PollerOptions options,
             Clock clock = std::chrono::steady_clock::now);
  ~PollerLoop();

  void execute(PollerCommand command);
  /// Polls every card and posts what there is room for. Returns how much happened (0: idle).
  std::size_t step();
  /// Sends messages that wait, as step() does, and nothing else.
  void send();
  /// Events since the last call.
  std::vector<PollerEvent> take_events();
  bool has_events() const;
  /// Nothing is posted, no peer is at work (PeersAtWork), and the last step found nothing that
  /// could be posted: sleeping until the next command, the cards' next completion or next_retry()
  /// loses nothing but latency.
  bool idle() const;
  /// No transfer is known and no peer is at work: what there is are messages.
  bool quiet() const;
  /// When a link that takes nothing (its peer is not connected, or gone) is to be tried again.
  std::optional<TimePoint> next_retry() const;

  std::size_t nic_count() const;
  Nic& nic(std::size_t i);
  const CardCounters& counters(std::size_t i) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The poller of one device: PollerLoop on a polling thread, with a command queue in and an event
/// queue out; the thread never waits for those who use them. Devices may share a thread: then each
/// of them gets one step in turn, and the thread sleeps only while all of them are idle.
class Poller {
 public:
  struct Thread {
    std::string name;       // at most 15 characters
    std::vector<int> cpus;  // pinned to these before the cards are opened; empty: not pinned
    std::shared_ptr<SideWork> side_work{};  // done between the rounds; null: none
  };
  struct Device {
    PollerOptions options;
    /// Opens the device's cards on the polling thread, after pinning. They are closed there, too.
    std::function<Result<std::vector<std::unique_ptr<Nic>>>()> open_cards;
    /// Called on the polling thread after events were queued; at most once until the next
    /// take_events(). Must not block.
    std::function<void()> doorbell;
  };
  struct Setup : Thread, Device {};

  /// A device with a thread of its own. Starts it and waits until the cards are open.
  static Result<std::unique_ptr<Poller>> start(Setup setup);
  /// Devices that share one thread, in their order. It spins as long as the most patient of them
  /// wants and ticks as often as the least. When one cannot be opened all are closed again, and its
  /// error is the answer. The thread ends with the last of the pollers.
  static Result<std::vector<std::unique_ptr<Poller>>> start_together(Thread thread,
                                                                     std::vector<Device> devices);
  /// Waits until the thread has closed the device's cards.
  ~Poller();

  /// Any thread.
  void push(PollerCommand command);
  /// One consumer. Clear first, then drain: an event queued meanwhile rings again.
  std::vector<PollerEvent> take_events();

  std::size_t nic_count() const;
  /// What any thread may ask of a card: info(), register_memory() and the addresses as opened.
  Nic& nic(std::size_t i);
  const CardCounters& counters(std::size_t i) const;
  /// CPU time of the thread so far. Devices that share one have equal parts of it.
  std::chrono::nanoseconds cpu_time() const;
  /// Of the whole thread, whatever the number of its devices.
  PollerUsage usage() const;

 private:
  Poller();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
