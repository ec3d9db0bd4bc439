// The client's one thread: it owns the connection, knows what is asked and not answered, and brings
// everything back after a lost connection. Not installed.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/connection.hpp"
#include "client/cpp/pending_requests.hpp"
#include "client/cpp/penstock.hpp"
#include "client/cpp/region_state.hpp"
#include "client/cpp/ring.hpp"
#include "client/cpp/subscription.hpp"
#include "client/cpp/transfer_state.hpp"
#include "client/cpp/wire.hpp"

namespace penstock::client {

/// Not to be guessed, and never the same twice.
std::string random_name(const std::string& prefix);

class Core : public std::enable_shared_from_this<Core> {
 public:
  /// Connects and waits for the first hello. Throws Error.
  static std::shared_ptr<Core> open(Options options);
  /// Ends everything under way as CANCELLED or lost. Callable twice.
  void close();

  const Options& options() const { return options_; }
  std::uint32_t timeout_ms() const { return options_.timeout_ms; }
  ServiceInfo service() const;
  bool on_own_thread() const { return std::this_thread::get_id() == thread_id_.load(); }
  bool has_ring() const { return has_ring_; }
  /// Looks for answers in the ring until `ready()`, for Options::spin_us at most; where there is no
  /// ring not at all. What else comes meanwhile is dealt with as well.
  template <class Ready>
  void spin_until(const Ready& ready) {
    if (!spin_begin()) return;
    struct HandBack {
      Core& core;
      ~HandBack() { core.spin_end(); }
    } hand_back{*this};
    constexpr unsigned kLooksBetweenClocks = 8;  // the clock costs as much as a look
    const auto start = Clock::now();
    for (unsigned looks = 1; !ready() && spin_once(); ++looks) {
      if (looks % kLooksBetweenClocks != 0) continue;
      const auto spun = Clock::now() - start;
      if (spun >= std::chrono::microseconds(options_.spin_us)) break;
      if (spun >= alone()) std::this_thread::yield();
    }
  }
  /// Callbacks of the user's run there, whoever learned what they are called for; here, when that
  /// thread has ended.
  void do_on_own_thread(std::function<void()> work);
  /// Throws Error INVALID_ARGUMENT on the client's thread.
  void refuse_on_own_thread(const char* what) const;

  /// Waits for the answer; throws Error. timeout_ms 0: the default.
  Json call(const std::string& operation, Json fields, std::uint32_t timeout_ms = 0);
  /// One handle state per target. Throws Error INVALID_ARGUMENT; refusals are results.
  std::vector<std::shared_ptr<TransferState>> submit(std::span<const TransferSpec> specs);
  /// A request of which the reply has the id of one transfer: asked twice, it is the same one.
  /// `encode` is called at once, and may throw. `may_have_ended`: long ago, so that it is asked
  /// for.
  std::shared_ptr<TransferState> start_transfer(
      const std::string& operation, const std::function<Message(std::uint64_t id)>& encode,
      bool may_have_ended = false);
  /// Asks until the service answers, or the stream has ended; one that it does not close is
  /// cancelled.
  void close_stream(std::uint64_t id, std::uint32_t parts,
                    const std::shared_ptr<TransferState>& whole);
  /// Asks, and does not wait for the answer.
  void tell(
      const std::string& operation, Json fields,
      std::function<void(const Outcome&)> done = [](const Outcome&) {});
  /// Waits until the service has taken the subscription; throws Error.
  std::shared_ptr<SubscriptionState> subscribe(const std::vector<std::string>& topics,
                                               EventCallback callback,
                                               std::optional<std::uint64_t> since);
  /// A region to make again when the service was restarted, until it is dropped.
  void keep(const std::shared_ptr<RegionState>& region);
  void drop(const RegionState* region);
  /// The region is to outlive this client: its lease does not concern it any more.
  void leave(const std::string& region);

 private:
  explicit Core(Options options);

  // ---- any thread ----
  std::uint64_t next_id() { return ++last_id_; }
  void post(Request request);
  void start_from_now(SubscriptionState& subscription, const Json& reply);
  Error no_answer(const Request& request) const;
  bool send_at_once(Request& request);
  std::unique_lock<std::mutex> turn_of_one_awake();
  /// How long a thread that waits awake keeps its core before it offers it to others.
  static Clock::duration alone();
  bool spin_begin();
  bool spin_once();
  void spin_end();

  // ---- whoever has the turn: the client's thread, or one that asks or waits by the ring ----
  void run();
  void begin(const Request& request);
  static void note_sent(Request& request);
  bool may_have_ring(const Json& hello) const;
  void take_ring(const Json& hello);
  void drop_ring();
  void on_ring_ended();
  bool transmit(const Message& message);
  void send_unsent();
  std::size_t receive_by_ring(std::size_t most);
  std::chrono::milliseconds prepare_to_wait();
  void doze();
  void after_wait(bool bell_rang);
  void do_what_was_left();
  void take_posted();
  void add(Request request);
  void send(Request& request);
  void ask(const std::string& operation, Json fields, std::function<void(const Outcome&)> done);
  std::chrono::milliseconds until_next_deadline() const;
  void on_message(std::span<const std::uint8_t> message);
  void on_reply(Heard& heard, std::span<const std::uint8_t> message);
  void on_event(const Heard& heard, std::span<const std::uint8_t> message);
  void on_connected();
  void on_disconnected();
  void on_refused(const std::string& why);
  void say_hello();
  void on_hello(std::uint64_t connection, const Outcome& outcome);
  void resume(const ServiceInfo& now);
  void make_regions_again();
  void make_again(const std::shared_ptr<RegionState>& region);
  void take_as_it_is(const std::shared_ptr<RegionState>& region);
  void made_again(const std::shared_ptr<RegionState>& region, const Outcome& outcome);
  void go_on();
  void renew_lease();
  void subscribe_again();
  void ask_for_waiting(Clock::duration age);
  void ask_for(const std::vector<std::uint64_t>& ids);
  void on_asked(const std::vector<std::uint64_t>& ids, const Json& reply);
  void on_accepted(const std::vector<std::shared_ptr<TransferState>>& states, bool ask_at_once,
                   const Outcome& outcome);
  void end_unaccepted(const std::vector<std::shared_ptr<TransferState>>& states,
                      const Error& error);
  void check_time();
  void end_everything();

  const Options options_;
  const std::optional<Keys> keys_;
  Connection connection_;
  std::atomic<std::uint64_t> last_id_{0};
  std::atomic<bool> connected_{false};
  std::atomic<bool> has_ring_{false};
  std::atomic<std::thread::id> thread_id_{};
  std::thread thread_;

  mutable std::mutex mutex_;
  bool closing_ = false;
  bool closed_ = false;  // the client's thread takes no more to do
  std::vector<Request> posted_;
  ServiceInfo service_;
  std::function<void(const Outcome&)> first_hello_;
  std::vector<std::shared_ptr<SubscriptionState>> subscriptions_;
  std::uint64_t last_sequence_ = 0;
  std::vector<std::shared_ptr<RegionState>> regions_;

  std::vector<std::function<void()>> to_do_;  // callbacks of the user's

  // ---- of whoever has the turn; of the connection only the client's thread sends and receives
  // ----
  std::mutex turn_;  // before mutex_
  std::unique_ptr<Ring> ring_;
  bool wants_ring_ = false;   // to be asked for with the next hello
  bool ring_failed_ = false;  // on this connection
  bool unsent_ = false;       // some requests found no room in the ring, or are too long for it
  bool waits_ = false;        // the client's thread, for something to come
  std::atomic<bool> dozes_{false};     // it looks by itself every moment, nobody needs to ring
  Clock::time_point looked_for_at_{};  // when the last answer came to one that looked for it
  Clock::time_point wakes_at_ = Clock::now();
  std::atomic<std::size_t> spinners_{0};
  PendingRequests pending_;
  WaitingTransfers waiting_;
  std::uint64_t connections_ = 0;  // so far
  /// The service of this connection has answered hello: it is known which life of it this is, and
  /// our regions are there. Other requests wait for that.
  bool greeted_ = false;
  /// Since the service was restarted: what is still to be made, and what came of it.
  std::vector<std::shared_ptr<RegionState>> to_make_;
  std::optional<Restart> restart_;
  bool asking_ = false;  // a question for waiting transfers is under way
  Clock::time_point last_heard_ = Clock::now();
  Clock::time_point next_check_ = Clock::now();
  Clock::time_point next_renewal_ = Clock::now();
};

}  // namespace penstock::client
