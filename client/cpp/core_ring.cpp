// The client and its ring: when it has one, what goes by it, and threads that look for an answer
// themselves instead of being woken.
#include <algorithm>

#include "client/cpp/core.hpp"

namespace penstock::client {
namespace {

constexpr std::size_t kAnswersPerTurn = 256;
constexpr std::chrono::milliseconds kNoRoomLook{1};
/// Whoever looked for an answer is expected to do so again for this long.
constexpr std::chrono::milliseconds kLookedFor{1};
/// So long the client's thread sleeps while others look for answers again and again.
constexpr std::chrono::microseconds kDoze{50};
/// How long one that waits awake waits for its turn.
constexpr std::chrono::microseconds kTurnPatience{100};

/// A ring is memory, so it takes one machine. What a service elsewhere hands out would not be found
/// here, and would keep others there from having it.
bool is_on_this_machine(const std::string& endpoint) {
  return endpoint.starts_with("ipc://") || endpoint.starts_with("tcp://127.") ||
         endpoint.starts_with("tcp://localhost:") || endpoint.starts_with("tcp://[::1]:");
}

}  // namespace

// ---- its life ----

/// Whether the service's hello offers one of a version that we speak.
bool Core::may_have_ring(const Json& hello) const {
  if (!options_.ring || ring_failed_ || !is_on_this_machine(options_.endpoint)) return false;
  const auto offer = hello.find("ring");
  return offer != hello.end() && offer->is_object() &&
         offer->value("version", std::uint32_t{0}) == kRingVersion;
}

/// Anything that is wrong leaves us with ZeroMQ, which does all that a ring does.
void Core::take_ring(const Json& hello) {
  if (ring_) return;
  try {
    const Json& offer = hello.at("ring");
    if (!offer.contains("token")) return;
    auto ring = std::make_unique<Ring>(offer.at("socket").get<std::string>(),
                                       offer.at("token").get<std::uint64_t>());
    // What we have sent is on its way by ZeroMQ: the ring begins behind all of that.
    const auto number = ring->announce();
    if (!number || !connection_.send({}, *number)) return;
    ring_ = std::move(ring);
    has_ring_ = true;
  } catch (const Error&) {
  } catch (const Json::exception&) {
  }
}

void Core::drop_ring() {
  ring_.reset();
  has_ring_ = false;
  unsent_ = false;
}

/// The service has ended it, or has died, which the connection will tell, too. What was asked by it
/// may have been read or not: as after a lost connection.
void Core::on_ring_ended() {
  while (receive_by_ring(kAnswersPerTurn) > 0) {
  }
  ring_->receive_left([this](std::span<const std::uint8_t> message) { on_message(message); });
  drop_ring();
  ring_failed_ = true;
  if (!connected_) return;
  greeted_ = false;
  ++connections_;
  asking_ = false;
  say_hello();
}

// ---- what goes by it ----

/// False: there is no room for it, or no connection; it stays among those to be sent.
bool Core::transmit(const Message& message) {
  if (!ring_) return connection_.send(message);
  if (!unsent_) {  // else it would overtake them
    const auto sent = ring_->send(message);
    if (sent == Ring::Sent::kSent) return true;
    if (sent == Ring::Sent::kTooLong && on_own_thread())
      if (const auto number = ring_->announce()) return connection_.send(message, *number);
  }
  unsent_ = true;
  if (!on_own_thread()) connection_.wake();
  return false;
}

void Core::send_unsent() {
  if (!unsent_ || !greeted_) return;
  unsent_ = false;
  for (auto* request : pending_.to_send()) {
    if (!request->sent) send(*request);
    if (unsent_) return;
  }
}

/// On the caller's own thread, when nobody else is at it.
bool Core::send_at_once(Request& request) {
  if (!has_ring_ || on_own_thread()) return false;
  const auto turn = turn_of_one_awake();
  if (!turn || !ring_ || !greeted_ || unsent_) return false;
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || !posted_.empty()) return false;
  }
  if (ring_->send(request.message) != Ring::Sent::kSent) return false;
  note_sent(request);
  begin(request);
  const auto now = Clock::now();
  const auto& added = pending_.add(std::move(request), now);
  // Whoever waits by the thread's clock must not wait longer for that.
  if (now + std::chrono::milliseconds(added.timeout_ms) < wakes_at_) connection_.wake();
  return true;
}

std::size_t Core::receive_by_ring(std::size_t most) {
  if (!ring_) return 0;
  return ring_->receive(most,
                        [this](std::span<const std::uint8_t> message) { on_message(message); });
}

/// Before the client's thread waits: for how long. Between the looks of others, when the next is
/// microseconds away, it only dozes: to be woken by each end of a transfer that comes then would
/// cost the service a system call and the others their turn.
std::chrono::milliseconds Core::prepare_to_wait() {
  waits_ = true;
  wakes_at_ = Clock::now();
  dozes_ = ring_ && !unsent_ && wakes_at_ < looked_for_at_ + kLookedFor;
  if (dozes_) return std::chrono::milliseconds(0);
  auto patience = until_next_deadline();
  if (ring_ && unsent_) patience = std::min(patience, kNoRoomLook);
  if (ring_ && spinners_ == 0 && !ring_->sleep()) patience = std::chrono::milliseconds(0);
  wakes_at_ = Clock::now() + patience;
  return patience;
}

/// As long as somebody looks for answers there is nothing for us in the ring.
void Core::doze() {
  while (!connection_.doze(kDoze) && spinners_ > 0 && Clock::now() < wakes_at_ + kLookedFor) {
  }
}

void Core::after_wait(bool bell_rang) {
  waits_ = false;
  if (!ring_) return;
  ring_->awake();
  receive_by_ring(kAnswersPerTurn);
  if (ring_ && (ring_->is_broken() || (bell_rang && !ring_->serve_bell()))) on_ring_ended();
}

// ---- threads that wait awake ----

/// Whoever has the turn gives it back within microseconds, but for a callback of the user's, which
/// may want what our caller holds.
std::unique_lock<std::mutex> Core::turn_of_one_awake() {
  std::unique_lock turn(turn_, std::try_to_lock);
  if (turn || options_.spin_us == 0) return turn;
  const auto end = Clock::now() + kTurnPatience;
  while (!turn.try_lock() && Clock::now() < end) {
  }
  return turn;
}

/// An answer that takes longer may be waiting for our core, and where there are few it does at
/// once.
Clock::duration Core::alone() {
  static const bool many = std::thread::hardware_concurrency() >= 8;
  return many ? std::chrono::microseconds(20) : std::chrono::microseconds(0);
}

bool Core::spin_begin() {
  if (options_.spin_us == 0 || !has_ring_ || on_own_thread()) return false;
  const auto turn = turn_of_one_awake();
  if (!turn || !ring_) return false;
  ++spinners_;
  ring_->awake();  // nobody needs to ring for us
  return true;
}

bool Core::spin_once() {
  const std::unique_lock turn(turn_, std::try_to_lock);
  if (!turn) return true;  // somebody else looks
  if (!ring_) return false;
  receive_by_ring(1);  // it may be the one, and those behind it can wait
  return true;
}

/// Waits for nobody: whoever has the turn may be in a callback, which may want what our caller
/// holds. The client's thread then sees to it that it is rung for when it waits the next time.
void Core::spin_end() {
  if (--spinners_ > 0) return;
  const std::unique_lock turn(turn_, std::try_to_lock);
  if (turn) looked_for_at_ = last_heard_;
  if (dozes_) return;
  if (turn && (!waits_ || !ring_ || ring_->sleep())) return;
  connection_.wake();
}

void Core::do_on_own_thread(std::function<void()> work) {
  if (on_own_thread()) {
    do_what_was_left();  // what came before
    return work();
  }
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      to_do_.push_back(std::move(work));
      connection_.wake();
      return;
    }
  }
  work();  // nobody else is left to do it
}

void Core::do_what_was_left() {
  std::vector<std::function<void()>> work;
  {
    const std::lock_guard lock(mutex_);
    work.swap(to_do_);
  }
  for (const auto& each : work) each();
}

}  // namespace penstock::client
