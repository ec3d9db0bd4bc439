#include "client/cpp/transfer.hpp"

#include <algorithm>

#include "client/cpp/core.hpp"

namespace penstock::client {

const char* name_of(TransferResult::State state) {
  switch (state) {
    case TransferResult::State::kDone:
      return "done";
    case TransferResult::State::kFailed:
      return "failed";
    case TransferResult::State::kCancelled:
      return "cancelled";
    case TransferResult::State::kExpired:
      return "expired";
    case TransferResult::State::kRefused:
      return "refused";
    case TransferResult::State::kLost:
      return "lost";
  }
  return "unknown";
}

std::uint64_t Transfer::id() const {
  // On the client's own thread waiting would be for itself; elsewhere the request's own deadline
  // ends the wait, and the limit here is only a second fence.
  auto limit = std::chrono::milliseconds(core_->on_own_thread() ? 0 : 60000 + core_->timeout_ms());
  core_->spin_until([this] { return state_->id_is_known(); });
  if (auto id = state_->id_within(limit)) return *id;
  throw Error("INVALID_ARGUMENT",
              "the transfer is not accepted yet, and a callback may not wait for its id");
}

std::shared_future<TransferResult> Transfer::future() const { return state_->future(); }

bool Transfer::ended() const {
  return future().wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

TransferResult Transfer::wait() const {
  if (!ended()) core_->refuse_on_own_thread("Transfer::wait");
  core_->spin_until([this] { return state_->has_ended(); });
  return future().get();
}

std::optional<TransferResult> Transfer::wait_for(std::chrono::milliseconds timeout) const {
  if (!ended()) core_->refuse_on_own_thread("Transfer::wait_for");
  const auto until = Clock::now() + std::min<Clock::duration>(timeout, std::chrono::hours(1));
  core_->spin_until([&] { return state_->has_ended() || Clock::now() >= until; });
  auto result = future();
  if (result.wait_for(timeout) != std::future_status::ready) return std::nullopt;
  return result.get();
}

void Transfer::cancel() const {
  core_->call("cancel", {{"ids", packed(std::span<const std::uint64_t>({id()}))}});
}

void Transfer::on_done(std::function<void(const TransferResult&)> callback) const {
  if (state_->has_ended()) return callback(state_->future().get());
  state_->on_done([core = core_.get(), callback = std::move(callback)](const TransferResult& how) {
    core->do_on_own_thread([callback, how] { callback(how); });
  });
}

std::vector<TransferResult> wait_all(const std::vector<Transfer>& transfers) {
  std::vector<TransferResult> results;
  results.reserve(transfers.size());
  for (const auto& transfer : transfers) results.push_back(transfer.wait());
  return results;
}

}  // namespace penstock::client
