// The gateway's way out: replies and events to their clients, by their rings or by ZeroMQ.
#include <fmt/format.h>

#include <iterator>
#include <tuple>

#include "actors/gateway/gateway_state.hpp"

namespace penstock {
namespace {

/// What may wait for a full pipe: bytes are bounded by the Outbox.
constexpr std::size_t kMostStuck = 65536;

}  // namespace

std::string shown(const std::string& identity) { return fmt::format("{:?}", identity); }

void Gateway::State::send(const ClientId& client, std::vector<std::uint8_t> message) {
  if (!rings.send(client, message)) by_socket(client, std::move(message), 0);
}

void Gateway::State::by_socket(const ClientId& client, std::vector<std::uint8_t> bytes,
                               std::uint64_t number) {
  if (outbox.push(client, std::move(bytes), number)) return;
  counters.overflowed++;
  overflowed(client);
}

void Gateway::State::flush() {
  rings.flush();
  for (auto entry = stuck.begin(); entry != stuck.end();) {
    auto& waiting = entry->second;
    while (!waiting.empty() && transmit(waiting.front())) waiting.pop_front();
    entry = waiting.empty() ? stuck.erase(entry) : std::next(entry);
  }
  for (Outgoing& message : outbox.take()) {
    const auto before = stuck.find(message.client);
    if (before == stuck.end() && transmit(message)) continue;
    auto& waiting = stuck[message.client];
    waiting.push_back(std::move(message));
    if (waiting.size() > kMostStuck) overflowed(waiting.back().client);
  }
  for (const ClientId& client : take_overflowed()) cut_slow(client);
}

/// A client that does not read what it asked for is cut: it learns by that that it missed
/// something, and nothing more is kept for it.
void Gateway::State::cut_slow(const ClientId& client) {
  const std::string identity = identity_of(client);
  audit.refused(shown(identity), "it does not read: its connection is cut");
  stuck.erase(client);
  rings.end(client);
  if (is_routed(client, identity)) cut(identity);
  if (setup.gone) setup.gone(client);
}

void Gateway::State::overflowed(const ClientId& client) {
  const std::lock_guard lock(overflowed_mutex);
  slow.insert(client);
  outbox.wake();
}

std::set<ClientId> Gateway::State::take_overflowed() {
  const std::lock_guard lock(overflowed_mutex);
  return std::exchange(slow, {});
}

/// False: its pipe is full for now.
bool Gateway::State::transmit(Outgoing& message) {
  // The identity frame alone meets a full or missing pipe; the payload then follows or is dropped
  // with it.
  const std::string identity = identity_of(message.client);
  if (!is_routed(message.client, identity)) {
    unroutable(message.client);
    return true;
  }
  try {
    if (!router.send(zmq::buffer(identity), zmq::send_flags::sndmore | zmq::send_flags::dontwait))
      return false;
    using zmq::send_flags;
    const bool numbered = message.number != 0;
    std::ignore = router.send(message.payload, numbered ? send_flags::sndmore | send_flags::dontwait
                                                        : send_flags::dontwait);
    if (numbered)
      std::ignore = router.send(zmq::buffer(&message.number, kNumberBytes), send_flags::dontwait);
    counters.sent++;
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH) throw;
    unroutable(message.client);
  }
  return true;
}

void Gateway::State::unroutable(const ClientId& client) {
  counters.unroutable++;
  rings.end(client);  // what it waits for there may have been this
  if (setup.gone) setup.gone(client);
}

}  // namespace penstock
