// The gateway's thread and the rings of clients on this node.
#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "actors/gateway/gateway_state.hpp"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds kForever{-1};
/// While rings are busy, so often it is looked whether anything else speaks, and so often everybody
/// else has a turn though nothing did.
constexpr std::chrono::microseconds kLook{20};
constexpr std::chrono::milliseconds kTurn{1};
constexpr unsigned kLooksBetweenClocks = 8;  // the clock costs as much as a look
/// Whoever has its answer asks again within a microsecond or two: so many looks are for it alone,
/// after each request, before the side work has a turn; or it has one when so many came in a row.
constexpr unsigned kLooksForTheNext = 16;
constexpr std::size_t kMostInARow = 8;
/// How soon a full pipe is tried again.
constexpr std::chrono::milliseconds kStuckLook{5};

}  // namespace

/// How long the sockets may be waited for.
std::chrono::milliseconds Gateway::State::patience() {
  constexpr std::chrono::milliseconds kNone{0};
  // flush() takes back the wake-ups of what came behind this turn's look at it.
  if (list_changed || rings.changed()) return kNone;
  if (rings.counters().open > 0 && may_receive()) {
    if (std::chrono::steady_clock::now() < spin_until) return kNone;
    if (!rings.sleep()) return kNone;
  }
  return stuck.empty() && !rings.waits() ? kForever : kStuckLook;
}

std::size_t Gateway::State::receive_by_rings() {
  if (rings.counters().open == 0 || !may_receive()) return 0;
  const std::size_t received = rings.receive(kRequestsPerTurn, take_from_ring());
  if (received > 0) spin_until = std::chrono::steady_clock::now() + setup.ring_spin;
  return received;
}

/// A client that has just asked by its ring may do so again at once: a sleep and the bell that ends
/// it would cost both sides more than its request. So would a turn of the sockets between two of
/// its requests: they have theirs when one of them has something.
void Gateway::State::spin() {
  if (rings.counters().open == 0 || std::chrono::steady_clock::now() >= spin_until) return;
  // Sending takes note of what came in meanwhile, too, and silences the descriptor.
  more_to_read = (router.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0;
  auto now = std::chrono::steady_clock::now();
  const auto turn = now + kTurn;
  auto look = now + kLook;
  unsigned without = 0;
  std::size_t in_a_row = 0;
  for (unsigned looks = 1; may_receive() && !outbox.rung() && !stopping; ++looks) {
    const std::size_t received = receive_by_rings();
    deliver_some();
    bool nothing = received == 0;
    in_a_row += received;
    without = nothing ? without + 1 : 0;
    if (setup.side_work && (without >= kLooksForTheNext || in_a_row >= kMostInARow)) {
      in_a_row = 0;
      if (setup.side_work->work(true)) nothing = false;
    }
    if (nothing && setup.ring_yields) std::this_thread::yield();
    if (nothing && !setup.ring_yields && looks % kLooksBetweenClocks != 0) continue;
    now = std::chrono::steady_clock::now();
    if (now >= std::min(turn, spin_until)) return;
    if (now < look) continue;
    if (rings.waits() || somebody_speaks()) return;
    look = now + kLook;
  }
}

/// One system call, where zmq::poll() takes one for each socket and more. A socket whose descriptor
/// is silent may have messages left: of the router `more_to_read` says so, others wait for kTurn at
/// most.
bool Gateway::State::somebody_speaks() {
  return more_to_read || ::poll(waited_for.data(), waited_for.size(), 0) != 0;
}

Rings::Port Gateway::State::ring_port() {
  return {
      .by_socket = [this](const ClientId& client, std::vector<std::uint8_t> bytes,
                          std::uint64_t number) { by_socket(client, std::move(bytes), number); },
      .slow =
          [this](const ClientId& client) {
            counters.overflowed++;
            overflowed(client);
          },
      .wake = [this] { outbox.wake(); },
      .broken =
          [this](const ClientId& client) {
            if (setup.gone) setup.gone(client);
          }};
}

/// No ring is no error: the client goes on by ZeroMQ.
void Gateway::State::hand_out_ring(const ClientId& client, const Principal& asker,
                                   HelloRequest& hello) {
  if (!setup.descriptors || setup.rings == 0 || hello.ring != kRingVersion) return;
  auto token = rings.hand_out(client, asker, *setup.descriptors);
  if (!token) return spdlog::warn("a client gets no ring: {}", token.error().message);
  hello.ring_token = *token;
}

Rings::Take Gateway::State::take_from_ring() {
  return [this](const ClientId& client, const Principal& asker, auto message) {
    const std::span bytes(*message);
    take(client, asker, bytes, std::move(message), true);
  };
}

}  // namespace penstock
