// The gateway's thread and the rings of clients on this node.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "actors/gateway/gateway_state.hpp"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds kForever{-1};
/// While rings are busy the sockets are looked at so often.
constexpr std::chrono::microseconds kSocketLook{20};
/// How soon a full pipe is tried again.
constexpr std::chrono::milliseconds kStuckLook{5};

}  // namespace

/// How long the sockets may be waited for.
std::chrono::milliseconds Gateway::State::patience() {
  constexpr std::chrono::milliseconds kNone{0};
  if (rings.counters().open > 0 && may_receive()) {
    if (std::chrono::steady_clock::now() < spin_until) return kNone;
    if (!rings.sleep()) return kNone;
  }
  return stuck.empty() && !rings.waits() ? kForever : kStuckLook;
}

void Gateway::State::receive_by_rings() {
  if (rings.counters().open == 0 || !may_receive()) return;
  if (rings.receive(kRequestsPerTurn, take_from_ring()) > 0)
    spin_until = std::chrono::steady_clock::now() + setup.ring_spin;
}

/// A client that has just asked by its ring may do so again at once: a sleep and the bell that ends
/// it would cost both sides more than its request.
void Gateway::State::spin() {
  if (rings.counters().open == 0) return;
  auto now = std::chrono::steady_clock::now();
  const auto look = now + kSocketLook;
  while (now < std::min(look, spin_until) && !outbox.rung() && !stopping) {
    receive_by_rings();
    deliver_some();
    now = std::chrono::steady_clock::now();
  }
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
  if (!setup.descriptors || setup.rings == 0 || hello.ring < kRingVersion) return;
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
