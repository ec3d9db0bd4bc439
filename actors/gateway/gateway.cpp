#include "actors/gateway/gateway.hpp"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <csignal>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "actors/gateway/connections.hpp"
#include "actors/gateway/doorman.hpp"
#include "actors/gateway/endpoint.hpp"
#include "actors/gateway/outbox.hpp"
#include "actors/gateway/turns.hpp"
#include "actors/protocol/reply.hpp"

namespace penstock {
namespace {

constexpr int kMaxMessagesPerPipe = 4096;  // outgoing; bytes are bounded by the Outbox
constexpr int kMaxRequestsPerPipe = 64;    // incoming, unread
constexpr int kLingerMs = 200;
/// Requests read before outgoing messages get their turn.
constexpr int kRequestsPerTurn = 256;
/// Requests read and not dealt with yet, of all clients. With so many, no more are read: they stay
/// in their clients' pipes, so a flood costs its senders time, not us memory or a long stop.
constexpr std::size_t kMostUnderWay = 65536;
constexpr std::size_t kMostWaitingBytes = std::size_t{1} << 30;
/// Whoever connects has so long to speak ZeroMQ, and to show a key where one is wanted.
constexpr int kHandshakeMs = 3000;
/// A connection whose other end has vanished is closed within this.
constexpr int kHeartbeatMs = 10'000;
constexpr int kHeartbeatTimeoutMs = 30'000;
constexpr std::size_t kMostRoutes = 65536;
constexpr std::chrono::milliseconds kForever{-1};
/// How soon a full pipe is tried again, and what may wait for it: bytes are bounded by the Outbox.
constexpr std::chrono::milliseconds kStuckLook{5};
constexpr std::size_t kMostStuck = 65536;

/// One message of a client: its identity and what it sent. More than one frame is not ours.
struct Incoming {
  std::string identity;
  ClientId client;
  Principal asker;
  zmq::message_t payload;
  std::size_t frames = 0;
};

/// Where an identity's messages came from last.
struct Route {
  std::string who;
  int fd = -1;
};

/// An identity may be any bytes.
std::string shown(const std::string& identity) { return fmt::format("{:?}", identity); }

std::string address_of(zmq::message_t& message) {
  const std::string address = property_of(message, "Peer-Address");
  return address.empty() ? "a client" : address;
}

}  // namespace

struct Gateway::State {
  explicit State(Setup given)
      : setup(std::move(given)),
        audit(setup.audit_lines_per_s),
        outbox(setup.max_unsent_bytes),
        turns({.client_requests = setup.max_client_requests}),
        doorman(context, setup.keys, setup.clients, audit) {}

  Result<void> open();
  Result<void> bind(const std::string& endpoint);
  void run();
  void receive_some();
  bool receive(Incoming& incoming);
  void answer(Incoming incoming);
  void deny(const Incoming& incoming, std::uint64_t id, ErrorCode code, const std::string& why);
  void deliver_some();
  void deliver(ClientId client, Request request);
  void refuse(const ClientId& client, std::uint64_t id, const Error& error);
  void flush();
  bool transmit(Outgoing& message);
  void unroutable(const ClientId& client);
  void send(const ClientId& client, const nlohmann::json& message);
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
  zmq::context_t context{1};
  Doorman doorman;
  zmq::socket_t router;
  std::optional<Connections> connections;
  std::unordered_map<std::string, Route> routes;  // by identity
  std::atomic<bool> waits{false};                 // somebody has a request waiting for its turn
  std::vector<std::string> endpoints;
  std::unordered_map<ClientId, std::deque<Outgoing>> stuck;  // in the order of sending
  std::mutex overflowed_mutex;
  std::set<ClientId> slow;  // what was sent to them found no room
  std::atomic<bool> list_changed{false};
  std::atomic<bool> stopping{false};
  std::atomic<std::size_t> under_way{0};
  std::thread thread;
};

// -- start and stop ------------------------------------------------------------------------------

Gateway::Gateway() = default;

Result<std::unique_ptr<Gateway>> Gateway::start(Setup setup) {
  if (setup.bind.empty())
    return fail(ErrorCode::kInvalidArgument, "the gateway has no endpoint to bind");
  try {
    std::unique_ptr<Gateway> gateway(new Gateway());
    gateway->state_ = std::make_unique<State>(std::move(setup));
    State* state = gateway->state_.get();
    if (auto opened = state->open(); !opened) return tl::unexpected(opened.error());
    state->thread = std::thread([state] { state->run(); });
    return gateway;
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInternal, "cannot start the gateway: {}", error.what());
  }
}

Gateway::~Gateway() {
  if (!state_ || !state_->thread.joinable()) return;
  state_->stopping = true;
  state_->outbox.wake();
  state_->thread.join();
}

const std::vector<std::string>& Gateway::endpoints() const { return state_->endpoints; }

void Gateway::send(const ClientId& client, nlohmann::json message) {
  state_->send(client, message);
}

Gateway::Counters Gateway::counters() const {
  const State::AtomicCounters& now = state_->counters;
  return {now.requests,   now.malformed,  now.sink_failures,     now.sent,
          now.unroutable, now.overflowed, state_->audit.count(), now.connections};
}

void Gateway::allow(AllowList clients) {
  state_->doorman.allow(std::move(clients));
  state_->list_changed = true;
  state_->outbox.wake();
}

Result<void> Gateway::State::open() {
  router = zmq::socket_t(context, zmq::socket_type::router);
  router.set(zmq::sockopt::router_handover, true);
  router.set(zmq::sockopt::router_mandatory, true);
  router.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(setup.max_request_bytes));
  router.set(zmq::sockopt::sndhwm, kMaxMessagesPerPipe);
  router.set(zmq::sockopt::rcvhwm, kMaxRequestsPerPipe);
  router.set(zmq::sockopt::linger, kLingerMs);
  router.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  router.set(zmq::sockopt::heartbeat_ivl, kHeartbeatMs);
  router.set(zmq::sockopt::heartbeat_timeout, kHeartbeatTimeoutMs);
  connections.emplace(context, router, setup.max_connections, audit);
  for (const std::string& endpoint : setup.bind)
    if (auto bound = bind(endpoint); !bound) return bound;
  return {};
}

Result<void> Gateway::State::bind(const std::string& endpoint) {
  if (auto prepared = prepare_endpoint(endpoint); !prepared) return prepared;
  try {
    router.set(zmq::sockopt::ipv6, is_ipv6_literal(endpoint));
    doorman.prepare(router, endpoint);
    {
      const OwnersOnly mask;
      router.bind(endpoint);
    }
    endpoints.push_back(router.get(zmq::sockopt::last_endpoint));
    connections->listens(endpoints.back());
  } catch (const zmq::error_t& error) {
    return tl::unexpected(bind_error(endpoint, error.num()));
  }
  return {};
}

// -- the gateway's thread ------------------------------------------------------------------------

void Gateway::State::run() {
  pthread_setname_np(pthread_self(), "gateway");
  sigset_t signals;  // they belong to the main thread
  sigfillset(&signals);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  while (!stopping) {
    try {
      std::vector<zmq::pollitem_t> items = {{nullptr, outbox.wake_fd(), ZMQ_POLLIN, 0},
                                            {connections->handle(), 0, ZMQ_POLLIN, 0}};
      if (doorman.asks_for_keys()) items.push_back({doorman.handle(), 0, ZMQ_POLLIN, 0});
      if (may_receive()) items.push_back({router.handle(), 0, ZMQ_POLLIN, 0});
      zmq::poll(items.data(), items.size(), stuck.empty() ? kForever : kStuckLook);
      connections->serve();
      counters.connections = connections->count();
      doorman.serve();
      if (list_changed.exchange(false)) cut_unlisted();
      receive_some();
      flush();
      deliver_some();  // after flush(), which takes back wake-ups: see waits
    } catch (const zmq::error_t& error) {
      if (error.num() == EINTR || error.num() == EAGAIN) continue;
      spdlog::error("gateway: {}", error.what());
      if (error.num() == ETERM || error.num() == ENOTSOCK) return;
    } catch (const std::exception& error) {
      spdlog::error("gateway: {}", error.what());
    }
  }
  try {
    flush();  // what was sent before the stop
  } catch (const std::exception& error) {
    spdlog::warn("gateway: last replies were lost: {}", error.what());
  }
  connections.reset();
  router.close();
}

void Gateway::State::receive_some() {
  for (int i = 0; i < kRequestsPerTurn && !stopping && may_receive(); ++i) {
    Incoming incoming;
    if (!receive(incoming)) return;
    answer(std::move(incoming));
  }
}

bool Gateway::State::receive(Incoming& incoming) {
  zmq::message_t identity;
  if (!router.recv(identity, zmq::recv_flags::dontwait)) return false;
  incoming.identity = identity.to_string();
  // ROUTER hands over whole messages: the frames are there once the first is.
  for (bool more = identity.more(); more;) {
    zmq::message_t frame;
    if (!router.recv(frame, zmq::recv_flags::dontwait)) break;
    more = frame.more();
    if (incoming.frames++ == 0) incoming.payload = std::move(frame);
  }
  return true;
}

ClientId Gateway::State::client_of(const std::string& who, const std::string& identity) const {
  return doorman.asks_for_keys() ? who + '\0' + identity : identity;  // no name has a NUL
}

std::string Gateway::State::identity_of(const ClientId& client) const {
  return doorman.asks_for_keys() ? client.substr(client.find('\0') + 1) : client;
}

void Gateway::State::note_route(Incoming& incoming) {
  if (routes.size() >= kMostRoutes && !routes.contains(incoming.identity)) routes.clear();
  routes[incoming.identity] = {incoming.asker.name,
                               zmq_msg_get(incoming.payload.handle(), ZMQ_SRCFD)};
}

/// False: somebody else's connection has taken this identity. Where keys are asked for, one that
/// nobody has spoken under is nobody's.
bool Gateway::State::is_routed(const ClientId& client, const std::string& identity) const {
  const auto found = routes.find(identity);
  if (found == routes.end()) return !doorman.asks_for_keys();
  return client_of(found->second.who, identity) == client;
}

/// Whoever was struck off the list hears nothing more, though it may never speak again.
void Gateway::State::cut_unlisted() {
  std::vector<std::pair<std::string, std::string>> struck;
  for (const auto& [identity, route] : routes)
    if (!route.who.empty() && !doorman.lists(route.who)) struck.emplace_back(identity, route.who);
  for (const auto& [identity, who] : struck) {
    audit.refused(who, "it is not on the allow-list any more");
    cut(identity);
    if (setup.gone) setup.gone(client_of(who, identity));
  }
}

void Gateway::State::cut(const std::string& identity) {
  const auto found = routes.find(identity);
  if (found == routes.end()) return;
  connections->cut(found->second.fd);
  routes.erase(found);
}

void Gateway::State::deny(const Incoming& incoming, std::uint64_t id, ErrorCode code,
                          const std::string& why) {
  audit.refused(incoming.asker.name.empty() ? shown(incoming.identity) : incoming.asker.name, why);
  send(incoming.client, error_reply(id, {code, why}));
}

void Gateway::State::answer(Incoming incoming) {
  const auto asker = doorman.asker(incoming.payload);
  if (!asker) {  // struck off the list: it may not even know why, nor keep its connection
    audit.refused(address_of(incoming.payload), "its key is not on the allow-list any more");
    note_route(incoming);
    return cut(incoming.identity);
  }
  incoming.asker = *asker;
  incoming.client = client_of(asker->name, incoming.identity);
  note_route(incoming);
  if (incoming.frames != 1)
    return refuse(incoming.client, 0,
                  {ErrorCode::kInvalidArgument,
                   fmt::format("a request is one frame, found {}; use a DEALER socket, which adds "
                               "no empty frame",
                               incoming.frames)});
  auto owner = std::make_shared<zmq::message_t>(std::move(incoming.payload));
  std::span message(static_cast<const std::byte*>(owner->data()), owner->size());
  const auto received = std::chrono::steady_clock::now();
  auto request = decode_request(message, owner);
  if (!request) return refuse(incoming.client, request.error().id, request.error().error);
  request->received = received;
  if (const Role wanted = role_for(request->body); incoming.asker.role < wanted)
    return deny(incoming, request->id, ErrorCode::kDenied,
                fmt::format("'{}' needs the role {}, '{}' has {}", name_of(request->body),
                            name_of(wanted), incoming.asker.name, name_of(incoming.asker.role)));
  request->who = incoming.asker.name;
  request->role = incoming.asker.role;
  const std::uint64_t id = request->id;
  if (!turns.add(incoming.client, std::move(*request), message.size()))
    deny(incoming, id, ErrorCode::kResourceExhausted,
         fmt::format("{} requests of this client wait for an answer: limits.client_requests",
                     turns.limits().client_requests));
}

void Gateway::State::deliver_some() {
  waits = true;  // before anybody is found to have enough under way: what ends meanwhile wakes us
  while (auto next = turns.next()) {
    next->request.ticket = ticket(std::move(next->load));
    deliver(std::move(next->client), std::move(next->request));
  }
  if (turns.waiting() == 0) waits = false;
}

/// Lives as long as its request, on whatever thread; the gateway outlives both.
std::shared_ptr<void> Gateway::State::ticket(std::shared_ptr<Turns::Load> load) {
  under_way++;
  return {this, [load = std::move(load)](State* state) {
            load->under_way--;
            const bool was_full = state->under_way.fetch_sub(1) >= kMostUnderWay;
            if (was_full || state->waits) state->outbox.wake();
          }};
}

void Gateway::State::deliver(ClientId client, Request request) {
  counters.requests++;
  std::uint64_t id = request.id;
  std::string reason;
  try {
    return setup.sink(client, std::move(request));
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
    reason = "unknown exception";
  }
  counters.sink_failures++;
  spdlog::error("gateway: the service failed on a request: {}", reason);
  send(client, error_reply(id, {ErrorCode::kInternal, "the service failed on this request"}));
}

void Gateway::State::refuse(const ClientId& client, std::uint64_t id, const Error& error) {
  counters.malformed++;
  send(client, error_reply(id, error));
}

// -- sending -------------------------------------------------------------------------------------

void Gateway::State::send(const ClientId& client, const nlohmann::json& message) {
  if (outbox.push(client, nlohmann::json::to_msgpack(message))) return;
  counters.overflowed++;
  overflowed(client);
}

void Gateway::State::flush() {
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
    std::ignore = router.send(message.payload, zmq::send_flags::dontwait);
    counters.sent++;
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH) throw;
    unroutable(message.client);
  }
  return true;
}

void Gateway::State::unroutable(const ClientId& client) {
  counters.unroutable++;
  if (setup.gone) setup.gone(client);
}

}  // namespace penstock
