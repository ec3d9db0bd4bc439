#include "client/cpp/subscription.hpp"

#include <algorithm>

namespace penstock::client {
namespace {

constexpr std::size_t kSeenKept = 65536;

std::string topic_of(const Event& event) {
  if (event.name == "transfer") return "transfers";
  if (event.name.starts_with("member_")) return "members";
  return event.name;
}

}  // namespace

void SubscriptionState::deliver(const Event& event) {
  std::lock_guard lock(mutex_);
  if (stopped_ || !wants(event) || !is_new(event.sequence)) return;
  callback_(event);
}

void SubscriptionState::skip_to(std::uint64_t floor) {
  std::lock_guard lock(mutex_);
  floor_ = std::max(floor_, floor);
}

void SubscriptionState::start_over() {
  std::lock_guard lock(mutex_);
  floor_ = 0;
  seen_.clear();
}

void SubscriptionState::stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
}

bool SubscriptionState::wants(const Event& event) const {
  return std::ranges::find(topics_, topic_of(event)) != topics_.end();
}

bool SubscriptionState::is_new(std::uint64_t sequence) {
  if (sequence <= floor_ || !seen_.insert(sequence).second) return false;
  if (seen_.size() > kSeenKept) {
    floor_ = *seen_.begin();
    seen_.erase(seen_.begin());
  }
  return true;
}

Subscription::Subscription(std::shared_ptr<SubscriptionState> state) : state_(std::move(state)) {}
Subscription::Subscription(Subscription&& other) noexcept = default;

Subscription& Subscription::operator=(Subscription&& other) noexcept {
  if (this != &other) {
    stop();
    state_ = std::move(other.state_);
  }
  return *this;
}

Subscription::~Subscription() { stop(); }

void Subscription::stop() {
  if (state_) state_->stop();
  state_.reset();
}

}  // namespace penstock::client
