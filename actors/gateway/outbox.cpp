#include "actors/gateway/outbox.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace penstock {

/// Travels with the bytes through ZeroMQ and pays back when they are freed, on whatever thread.
struct Outbox::Charge {
  std::vector<std::uint8_t> bytes;
  std::shared_ptr<Unsent> unsent;

  Charge(std::vector<std::uint8_t> sent, std::shared_ptr<Unsent> budget)
      : bytes(std::move(sent)), unsent(std::move(budget)) {}
  ~Charge() { unsent->fetch_sub(bytes.size()); }
  static void free(void*, void* charge) { delete static_cast<Charge*>(charge); }
};

Outbox::Outbox(std::size_t max_client_bytes)
    : max_client_bytes_(max_client_bytes), wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wake_fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Outbox::~Outbox() { ::close(wake_fd_); }

std::shared_ptr<Outbox::Unsent> Outbox::unsent_of(const std::string& client) {
  if (unsent_.size() >= sweep_at_) {
    std::erase_if(unsent_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = 64 + 2 * unsent_.size();
  }
  std::weak_ptr<Unsent>& entry = unsent_[client];
  auto unsent = entry.lock();
  if (!unsent) entry = unsent = std::make_shared<Unsent>(0);
  return unsent;
}

bool Outbox::push(const std::string& client, std::vector<std::uint8_t> bytes,
                  std::uint64_t number) {
  bool was_empty = false;
  {
    std::lock_guard lock(mutex_);
    auto unsent = unsent_of(client);
    std::size_t before = unsent->load();
    if (before > 0 && before + bytes.size() > max_client_bytes_) return false;
    unsent->fetch_add(bytes.size());
    auto charge = std::make_unique<Charge>(std::move(bytes), std::move(unsent));
    zmq::message_t payload(charge->bytes.data(), charge->bytes.size(), &Charge::free, charge.get());
    (void)charge.release();  // the message has it now
    was_empty = waiting_.empty();
    waiting_.push_back({client, std::move(payload), number});
  }
  if (was_empty) wake();
  return true;
}

std::vector<Outgoing> Outbox::take() {
  // Clear first, then look: a push after the look wakes again.
  std::uint64_t count = 0;
  [[maybe_unused]] auto read = ::read(wake_fd_, &count, sizeof count);
  rung_ = false;
  std::lock_guard lock(mutex_);
  return std::exchange(waiting_, {});
}

void Outbox::wake() {
  rung_ = true;
  std::uint64_t one = 1;
  [[maybe_unused]] auto written = ::write(wake_fd_, &one, sizeof one);
}

}  // namespace penstock
