#include "client/cpp/transfer_state.hpp"

#include <utility>

namespace penstock::client {

void TransferState::accept(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  id_ = id;
  accepted_ = true;
  known_.notify_all();
}

void TransferState::end(TransferResult result) {
  std::vector<std::function<void(const TransferResult&)>> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    promise_.set_value(std::move(result));
    ended_ = true;
    callbacks.swap(callbacks_);
    known_.notify_all();
  }
  for (auto& callback : callbacks) callback(future_.get());
}

std::optional<std::uint64_t> TransferState::id_within(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  known_.wait_for(lock, timeout, [this] { return accepted_ || ended_; });
  if (accepted_) return id_;
  if (!ended_) return std::nullopt;
  const auto& result = future_.get();
  throw Error(result.error_code, result.error_message);
}

void TransferState::on_done(std::function<void(const TransferResult&)> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!ended_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(future_.get());
}

TransferResult untold(TransferResult::State state, std::uint64_t id, const Error& error) {
  TransferResult result;
  result.id = id;
  result.state = state;
  result.remote = TransferResult::Remote::kUnreachable;
  result.error_code = error.code();
  result.error_message = error.message();
  return result;
}

void WaitingTransfers::request_answered() {
  if (--requests_ == 0) early_.clear();
}

void WaitingTransfers::accept(std::uint64_t id, std::shared_ptr<TransferState> state,
                              std::uint64_t connection, Clock::time_point now) {
  state->accept(id);
  if (auto early = early_.find(id); early != early_.end()) {
    state->end(early->second);
    return;
  }
  auto& waiting = waiting_[id];
  waiting.states.push_back(std::move(state));
  waiting.connection = connection;
  waiting.accepted = now;
}

void WaitingTransfers::end(const TransferResult& result) {
  auto found = waiting_.find(result.id);
  if (found == waiting_.end()) {
    if (requests_ > 0) early_.emplace(result.id, result);
    return;
  }
  auto states = std::move(found->second.states);
  waiting_.erase(found);
  for (auto& state : states) state->end(result);
}

void WaitingTransfers::lose(std::uint64_t id, const Error& error) {
  if (waiting_.contains(id)) end(untold(TransferResult::State::kLost, id, error));
}

void WaitingTransfers::lose_before(std::uint64_t connection, const Error& error) {
  std::vector<std::uint64_t> lost;
  for (const auto& [id, waiting] : waiting_) {
    if (waiting.connection < connection) lost.push_back(id);
  }
  for (auto id : lost) lose(id, error);
}

std::vector<std::uint64_t> WaitingTransfers::to_ask(Clock::time_point now, Clock::duration age,
                                                    std::size_t limit) {
  std::vector<std::uint64_t> ids;
  auto next = waiting_.upper_bound(last_asked_);
  for (std::size_t seen = 0; seen < waiting_.size() && ids.size() < limit; ++seen, ++next) {
    if (next == waiting_.end()) next = waiting_.begin();
    if (now - next->second.accepted >= age) ids.push_back(next->first);
  }
  if (!ids.empty()) last_asked_ = ids.back();
  return ids;
}

}  // namespace penstock::client
