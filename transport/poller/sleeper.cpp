#include "transport/poller/sleeper.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace penstock {
namespace {

/// An idle node wakes now and then even when nothing tells it to: a lost wake-up costs a second.
constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::seconds(1);
/// A descriptor that was readable at every look for so long, while nothing was expected, is stuck.
constexpr auto kReadableAtMost = std::chrono::seconds(1);
constexpr auto kDistrust = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<Sleeper>> Sleeper::make() {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0)
    return fail(ErrorCode::kResourceExhausted,
                "eventfd: {}; raise the limit of open files (ulimit -n)", std::strerror(errno));
  return std::unique_ptr<Sleeper>(new Sleeper(fd));
}

Sleeper::~Sleeper() { close(event_fd_); }

void Sleeper::watch(const std::vector<Nic*>& cards, std::chrono::milliseconds tick) {
  cards_ = cards;
  tick_ = tick;
  needs_tick_ = false;
  descriptors_ = {{event_fd_, POLLIN, 0}};
  for (const Nic* card : cards) {
    if (card->info().wait_fd < 0) {
      needs_tick_ = true;
    } else {
      descriptors_.push_back({card->info().wait_fd, POLLIN, 0});
    }
  }
}

void Sleeper::wake() {
  if (!asleep_.load()) return;
  const std::uint64_t one = 1;
  // Fails only when the counter is full: then it is readable anyway.
  [[maybe_unused]] const auto written = write(event_fd_, &one, sizeof one);
}

Sleeper::Woken Sleeper::wait(std::optional<Clock::time_point> until) {
  const auto now = Clock::now();
  if (distrusted_until_ && now >= *distrusted_until_) distrusted_until_.reset();
  std::chrono::nanoseconds most = kLongestSleep;
  if (needs_tick_ || distrusted_until_) most = tick_;
  if (until) most = std::min<std::chrono::nanoseconds>(most, *until - now);
  most = std::max<std::chrono::nanoseconds>(most, std::chrono::nanoseconds(0));
  const timespec timeout{static_cast<time_t>(most.count() / 1'000'000'000),
                         static_cast<long>(most.count() % 1'000'000'000)};
  const nfds_t watched = distrusted_until_ ? 1 : descriptors_.size();
  int ready = poll(descriptors_.data(), watched, 0);
  const bool at_once = ready > 0;
  if (!at_once) {
    readable_since_.reset();
    ready = ppoll(descriptors_.data(), watched, &timeout, nullptr);
  }
  if (ready <= 0) return Woken::kTime;
  if (descriptors_.front().revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto drained = read(event_fd_, &count, sizeof count);
    return Woken::kCommand;
  }
  if (!at_once) return Woken::kCard;
  if (!readable_since_) readable_since_ = now;
  if (now - *readable_since_ > kReadableAtMost) {
    distrusted_until_ = now + kDistrust;
    readable_since_.reset();
  }
  return Woken::kCard;
}

}  // namespace penstock
