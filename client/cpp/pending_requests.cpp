#include "client/cpp/pending_requests.hpp"

namespace penstock::client {

Request& PendingRequests::add(Request request, Clock::time_point now) {
  auto id = request.id;
  auto deadline = now + std::chrono::milliseconds(request.timeout_ms);
  deadlines_.emplace(deadline, id);
  return pending_.emplace(id, Pending{std::move(request), deadline}).first->second.request;
}

std::optional<Request> PendingRequests::take(std::uint64_t id) {
  auto found = pending_.find(id);
  if (found == pending_.end()) return std::nullopt;
  auto request = std::move(found->second.request);
  deadlines_.erase({found->second.deadline, id});
  pending_.erase(found);
  return request;
}

std::vector<Request> PendingRequests::take_expired(Clock::time_point now) {
  std::vector<Request> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    expired.push_back(*take(deadlines_.begin()->second));
  }
  return expired;
}

std::vector<Request> PendingRequests::take_all() { return take_expired(Clock::time_point::max()); }

std::vector<Request> PendingRequests::take_unanswerable() {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, pending] : pending_)
    if (pending.request.sent && !pending.request.repeatable) ids.push_back(id);
  std::vector<Request> requests;
  for (auto id : ids) requests.push_back(*take(id));
  return requests;
}

std::optional<Clock::time_point> PendingRequests::next_deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

std::vector<Request*> PendingRequests::to_send() {
  std::vector<Request*> requests;
  for (auto& [id, pending] : pending_) {
    if (!pending.request.sent || pending.request.repeatable) requests.push_back(&pending.request);
  }
  return requests;
}

}  // namespace penstock::client
