// What the handles of one transfer share, and the transfers that a client still waits for. Not
// installed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "client/cpp/transfer.hpp"

namespace penstock::client {

using Clock = std::chrono::steady_clock;

/// Any thread. Ends once; later ends are ignored.
struct TransferState {
 public:
  void accept(std::uint64_t id);
  void end(TransferResult result);

  /// The id; nullopt when it is not known after `timeout`. Throws Error when the transfer ended
  /// without one.
  std::optional<std::uint64_t> id_within(std::chrono::milliseconds timeout);
  std::shared_future<TransferResult> future() const { return future_; }
  void on_done(std::function<void(const TransferResult&)> callback);
  bool id_is_known() const { return accepted_ || ended_; }
  bool has_ended() const { return ended_; }

 private:
  std::mutex mutex_;
  std::condition_variable known_;
  std::uint64_t id_ = 0;
  std::atomic<bool> accepted_{false};
  std::atomic<bool> ended_{false};
  std::promise<TransferResult> promise_;
  std::shared_future<TransferResult> future_ = promise_.get_future().share();
  std::vector<std::function<void(const TransferResult&)>> callbacks_;
};

/// A result for a transfer whose end the service did not tell.
TransferResult untold(TransferResult::State state, std::uint64_t id, const Error& error);

/// The accepted transfers whose end has not come. One thread.
class WaitingTransfers {
 public:
  /// Ends that come before the ids of their request are kept while requests are under way.
  void request_sent() { ++requests_; }
  void request_answered();

  /// `connection`: a number that rises with every connection to the service.
  void accept(std::uint64_t id, std::shared_ptr<TransferState> state, std::uint64_t connection,
              Clock::time_point now);
  /// Ends the handles of result.id.
  void end(const TransferResult& result);
  /// Ends one, or all that were accepted before `connection`, as lost.
  void lose(std::uint64_t id, const Error& error);
  void lose_before(std::uint64_t connection, const Error& error);

  bool empty() const { return waiting_.empty(); }
  /// At most `limit` ids that were accepted at least `age` ago, taking turns.
  std::vector<std::uint64_t> to_ask(Clock::time_point now, Clock::duration age, std::size_t limit);

 private:
  struct Waiting {
    std::vector<std::shared_ptr<TransferState>> states;  // several when a key was repeated
    std::uint64_t connection = 0;
    Clock::time_point accepted;
  };

  std::map<std::uint64_t, Waiting> waiting_;
  std::uint64_t last_asked_ = 0;
  std::size_t requests_ = 0;
  std::unordered_map<std::uint64_t, TransferResult> early_;
};

}  // namespace penstock::client
