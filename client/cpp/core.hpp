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
#include "client/cpp/subscription.hpp"
#include "client/cpp/transfer_state.hpp"
#include "client/cpp/wire.hpp"

namespace penstock::client {

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
  /// Throws Error INVALID_ARGUMENT on the client's thread.
  void refuse_on_own_thread(const char* what) const;

  /// Waits for the answer; throws Error. timeout_ms 0: the default.
  Json call(const std::string& operation, Json fields, std::uint32_t timeout_ms = 0);
  /// One handle state per target. Throws Error INVALID_ARGUMENT; refusals are results.
  std::vector<std::shared_ptr<TransferState>> submit(const std::vector<TransferSpec>& specs);
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

  // ---- the client's thread ----
  void run();
  void take_posted();
  void add(Request request);
  void send(Request& request);
  void ask(const std::string& operation, Json fields, std::function<void(const Outcome&)> done);
  std::chrono::milliseconds until_next_deadline() const;
  void on_message(std::span<const std::uint8_t> message);
  void on_reply(const Json& reply);
  void on_event(const Json& body);
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
  std::atomic<std::thread::id> thread_id_{};
  std::thread thread_;

  mutable std::mutex mutex_;
  bool closing_ = false;
  std::vector<Request> posted_;
  ServiceInfo service_;
  std::function<void(const Outcome&)> first_hello_;
  std::vector<std::shared_ptr<SubscriptionState>> subscriptions_;
  std::uint64_t last_sequence_ = 0;
  std::vector<std::shared_ptr<RegionState>> regions_;

  // ---- the client's thread only ----
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
