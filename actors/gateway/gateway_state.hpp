// What the gateway's thread has and does; gateway.cpp takes requests, gateway_send.cpp sends, and
// gateway_rings.cpp is about rings. For those three alone.
#pragma once

#include <poll.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "actors/gateway/connections.hpp"
#include "actors/gateway/doorman.hpp"
#include "actors/gateway/gateway.hpp"
#include "actors/gateway/outbox.hpp"
#include "actors/gateway/rings.hpp"
#include "actors/gateway/routes.hpp"
#include "actors/gateway/turns.hpp"

namespace penstock {

/// Requests read before outgoing messages get their turn.
inline constexpr int kRequestsPerTurn = 256;
/// Requests read and not dealt with yet, of all clients. With so many, no more are read: they stay
/// in their clients' pipes, so a flood costs its senders time, not us memory or a long stop.
inline constexpr std::size_t kMostUnderWay = 65536;
inline constexpr std::size_t kMostWaitingBytes = std::size_t{1} << 30;
inline constexpr std::size_t kNumberBytes = sizeof(std::uint64_t);

/// One message of a client: its identity and what it sent. More than one frame is not ours.
struct Incoming {
  std::string identity;
  ClientId client;
  Principal asker;
  zmq::message_t payload;
  std::size_t frames = 0;
  std::optional<std::uint64_t> number{};  // beside it: its place among those of the client's ring
};

/// An identity may be any bytes.
std::string shown(const std::string& identity);

struct Gateway::State {
  explicit State(Setup given)
      : setup(std::move(given)),
        audit(setup.audit_lines_per_s),
        outbox(setup.max_unsent_bytes),
        turns({.client_requests = setup.max_client_requests}),
        rings({.most = setup.descriptors ? setup.rings : 0,
               .bytes = setup.ring_bytes,
               .max_unsent_bytes = setup.max_unsent_bytes},
              ring_port(), audit),
        doorman(context, setup.keys, setup.clients, audit) {}

  Result<void> open();
  Result<void> bind(const std::string& endpoint);
  void run();
  std::chrono::milliseconds patience();
  void receive_some();
  std::size_t receive_by_rings();
  void spin();
  bool somebody_speaks();
  Rings::Port ring_port();
  bool receive(Incoming& incoming);
  void answer(Incoming incoming);
  void take(const ClientId& client, const Principal& asker, std::span<const std::byte> message,
            std::shared_ptr<const void> owner, bool local);
  Rings::Take take_from_ring();
  void hand_out_ring(const ClientId& client, const Principal& asker, HelloRequest& hello);
  void deny(const ClientId& client, const Principal& asker, std::uint64_t id, ErrorCode code,
            const std::string& why);
  void deliver_some();
  void deliver_those_due();
  void deliver(const ClientId& client, Request& request, bool alone);
  void malformed(const ClientId& client, std::uint64_t id, const Error& error);
  void refuse(const ClientId& client, std::uint64_t id, const Error& error);
  void flush();
  bool transmit(Outgoing& message);
  void unroutable(const ClientId& client);
  void send(const ClientId& client, std::vector<std::uint8_t> message);
  void by_socket(const ClientId& client, std::vector<std::uint8_t> bytes, std::uint64_t number);
  bool may_receive() const {
    return under_way + turns.waiting() < kMostUnderWay && turns.waiting_bytes() < kMostWaitingBytes;
  }
  std::shared_ptr<void> ticket(std::shared_ptr<Turns::Load> load);
  ClientId client_of(const std::string& who, const std::string& identity) const;
  std::string identity_of(const ClientId& client) const;
  void note_route(Incoming& incoming);
  bool is_routed(const ClientId& client, const std::string& identity) const;
  void cut(const std::string& identity);
  void cut_unlisted();
  void cut_slow(const ClientId& client);
  void overflowed(const ClientId& client);
  std::set<ClientId> take_overflowed();

  struct AtomicCounters {
    std::atomic<std::uint64_t> requests{0}, malformed{0}, sink_failures{0}, sent{0}, unroutable{0},
        overflowed{0}, connections{0};
  };

  const Setup setup;
  AtomicCounters counters;
  Audit audit;
  Outbox outbox;
  Turns turns;
  Rings rings;
  std::chrono::steady_clock::time_point spin_until{};
  std::vector<pollfd> waited_for;  // what run() waits for, by descriptors
  bool more_to_read = false;       // at the router, after its turn
  zmq::context_t context{1};
  Doorman doorman;
  zmq::socket_t router;
  std::optional<Connections> connections;
  Routes routes;
  std::atomic<bool> waits{false};  // somebody has a request waiting for its turn
  std::vector<std::string> endpoints;
  std::unordered_map<ClientId, std::deque<Outgoing>> stuck;  // in the order of sending
  std::mutex overflowed_mutex;
  std::set<ClientId> slow;  // what was sent to them found no room
  std::atomic<bool> list_changed{false};
  std::atomic<bool> stopping{false};
  std::atomic<std::size_t> under_way{0};
  std::thread thread;
};

}  // namespace penstock
