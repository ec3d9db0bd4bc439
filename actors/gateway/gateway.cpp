#include "actors/gateway/gateway.hpp"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <cstring>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "actors/gateway/endpoint.hpp"
#include "actors/gateway/gateway_state.hpp"
#include "actors/protocol/reply.hpp"

namespace penstock {
namespace {

constexpr int kMaxMessagesPerPipe = 4096;  // outgoing; bytes are bounded by the Outbox
constexpr int kLingerMs = 200;
/// Whoever connects has so long to speak ZeroMQ, and to show a key where one is wanted.
constexpr int kHandshakeMs = 3000;
/// A connection whose other end has vanished is closed 40 s after it was last heard. TCP looks, not
/// ZeroMQ's heartbeats: libzmq 4.3 aborts at the next one when a connection that lost its identity
/// to another has written and hung up. Our clients' own heartbeats say within which time the next
/// comes (ZMQ_HEARTBEAT_TTL): it closes such a connection, which libzmq would keep for ever, and
/// those of clients that stand still.
constexpr int kKeepaliveIdleS = 10;
constexpr int kKeepaliveIntervalS = 10;
constexpr int kKeepaliveProbes = 3;
constexpr int kUnacknowledgedMs = 40'000;

/// From this machine: by ipc, of which ZeroMQ says "localhost:" and who it is, or from loopback.
bool is_local(const std::string& address) {
  return address.empty() || address.starts_with("localhost") || address.starts_with("127.") ||
         address.starts_with("::1") || address.starts_with("::ffff:127.");
}

int descriptor_of(void* socket) {
  int fd = -1;
  std::size_t size = sizeof fd;
  if (zmq_getsockopt(socket, ZMQ_FD, &fd, &size) != 0) throw zmq::error_t();
  return fd;
}

std::string address_of(zmq::message_t& message) {
  const std::string address = property_of(message, "Peer-Address");
  return address.empty() ? "a client" : address;
}

}  // namespace

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

void Gateway::send(const ClientId& client, const nlohmann::json& message) {
  state_->send(client, nlohmann::json::to_msgpack(message));
}

void Gateway::send_packed(const ClientId& client, std::vector<std::uint8_t> message) {
  state_->send(client, std::move(message));
}

Gateway::Counters Gateway::counters() const {
  const State::AtomicCounters& now = state_->counters;
  const Rings::Counters& rings = state_->rings.counters();
  return {now.requests,   now.malformed,  now.sink_failures,     now.sent,
          now.unroutable, now.overflowed, state_->audit.count(), now.connections,
          rings.open,     rings.requests, rings.answers};
}

void Gateway::end_ring(const ClientId& client) { state_->rings.end(client); }

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
  // No bound. libzmq 4.3 stops reading a connection at its bound; when that one then hangs up, and
  // there is room again, it answers a PING that it had read before, and aborts. So all is read at
  // once, and refused when too much waits.
  router.set(zmq::sockopt::rcvhwm, 0);
  router.set(zmq::sockopt::linger, kLingerMs);
  router.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  router.set(zmq::sockopt::tcp_keepalive, 1);
  router.set(zmq::sockopt::tcp_keepalive_idle, kKeepaliveIdleS);
  router.set(zmq::sockopt::tcp_keepalive_intvl, kKeepaliveIntervalS);
  router.set(zmq::sockopt::tcp_keepalive_cnt, kKeepaliveProbes);
  router.set(zmq::sockopt::tcp_maxrt, kUnacknowledgedMs);
  connections.emplace(context, router, setup.max_connections, audit);
  for (const std::string& endpoint : setup.bind)
    if (auto bound = bind(endpoint); !bound) return bound;
  waited_for = {{outbox.wake_fd(), POLLIN, 0},
                {rings.handle(), POLLIN, 0},
                {descriptor_of(connections->handle()), POLLIN, 0},
                {router.get(zmq::sockopt::fd), POLLIN, 0}};
  if (doorman.asks_for_keys()) waited_for.push_back({descriptor_of(doorman.handle()), POLLIN, 0});
  return {};
}

Result<void> Gateway::State::bind(const std::string& endpoint) {
  constexpr std::string_view kSetting = "request.bind";
  if (auto prepared = prepare_endpoint(kSetting, endpoint); !prepared) return prepared;
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
    return tl::unexpected(bind_error(kSetting, endpoint, error.num()));
  }
  return {};
}

// -- the gateway's thread ------------------------------------------------------------------------

void Gateway::State::run() {
  pthread_setname_np(pthread_self(), "gateway");
  sigset_t signals;  // they belong to the main thread
  sigfillset(&signals);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  if (setup.side_work) setup.side_work->begin([] {});  // it is given nothing while we sleep
  while (!stopping) {
    try {
      if (setup.side_work) setup.side_work->work(false);
      std::vector<zmq::pollitem_t> items = {{nullptr, outbox.wake_fd(), ZMQ_POLLIN, 0},
                                            {connections->handle(), 0, ZMQ_POLLIN, 0},
                                            {nullptr, rings.handle(), ZMQ_POLLIN, 0}};
      if (doorman.asks_for_keys()) items.push_back({doorman.handle(), 0, ZMQ_POLLIN, 0});
      items.push_back({router.handle(), 0, ZMQ_POLLIN, 0});
      zmq::poll(items.data(), items.size(), patience());
      rings.awake();
      rings.serve();
      connections->serve();
      counters.connections = connections->count();
      doorman.serve();
      if (list_changed.exchange(false)) cut_unlisted();
      receive_by_rings();
      receive_some();
      flush();
      deliver_some();  // after flush(), which takes back wake-ups: see waits
      spin();
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
  const auto by_ring = [this] { return rings.counters().requests.load(); };
  for (std::uint64_t i = 0; i < kRequestsPerTurn && !stopping; ++i) {
    Incoming incoming;
    more_to_read = receive(incoming);
    if (!more_to_read) return;
    const std::uint64_t before = by_ring();
    answer(std::move(incoming));
    i += by_ring() - before;  // one message may bring all that is in its client's ring
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
    if (incoming.frames++ == 0)
      incoming.payload = std::move(frame);
    else if (incoming.frames == 2 && frame.size() == kNumberBytes)
      std::memcpy(&incoming.number.emplace(), frame.data(), kNumberBytes);
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
  routes.note(incoming.identity, incoming.asker.name,
              zmq_msg_get(incoming.payload.handle(), ZMQ_SRCFD));
}

/// False: somebody else's connection has taken this identity. Where keys are asked for, one that
/// nobody has spoken under is nobody's.
bool Gateway::State::is_routed(const ClientId& client, const std::string& identity) const {
  const Routes::Route* route = routes.find(identity);
  if (route == nullptr) return !doorman.asks_for_keys();
  return client_of(route->who, identity) == client;
}

/// Whoever was struck off the list hears nothing more, though it may never speak again.
void Gateway::State::cut_unlisted() {
  receive_by_rings();  // what they asked while they were let in
  rings.end_keyed();
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
  const Routes::Route* route = routes.find(identity);
  if (route == nullptr) return;
  connections->cut(route->fd);
  routes.forget(identity);
}

void Gateway::State::deny(const ClientId& client, const Principal& asker, std::uint64_t id,
                          ErrorCode code, const std::string& why) {
  audit.refused(asker.name.empty() ? shown(identity_of(client)) : asker.name, why);
  refuse(client, id, {code, why});
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
  const bool numbered = incoming.frames == 2 && incoming.number;
  if (incoming.frames != 1 && !numbered)
    return malformed(
        incoming.client, 0,
        {ErrorCode::kInvalidArgument,
         fmt::format("a request is one frame, found {}; use a DEALER socket, which adds "
                     "no empty frame",
                     incoming.frames)});
  if (numbered)
    rings.receive_until(incoming.client, *incoming.number, take_from_ring());
  else
    rings.spoke_apart(incoming.client);
  const bool local = is_local(property_of(incoming.payload, "Peer-Address"));
  auto owner = std::make_shared<zmq::message_t>(std::move(incoming.payload));
  std::span message(static_cast<const std::byte*>(owner->data()), owner->size());
  if (numbered && message.empty()) return;  // it only says where what comes by its ring begins
  take(incoming.client, incoming.asker, message, owner, local);
}

/// A client's message, whichever way it came.
void Gateway::State::take(const ClientId& client, const Principal& asker,
                          std::span<const std::byte> message, std::shared_ptr<const void> owner,
                          bool local) {
  const auto received = std::chrono::steady_clock::now();
  auto request = decode_request(message, std::move(owner));
  if (!request) return malformed(client, request.error().id, request.error().error);
  request->received = received;
  if (const Role wanted = role_for(request->body); asker.role < wanted)
    return deny(client, asker, request->id, ErrorCode::kDenied,
                fmt::format("'{}' needs the role {}, '{}' has {}", name_of(request->body),
                            name_of(wanted), asker.name, name_of(asker.role)));
  if (!may_receive() && turns.has_any(client))  // whoever asks for one at a time is heard
    return deny(client, asker, request->id, ErrorCode::kResourceExhausted,
                fmt::format("{} requests of {} bytes wait here: ask again later", turns.waiting(),
                            turns.waiting_bytes()));
  request->who = asker.name;
  request->role = asker.role;
  const std::uint64_t id = request->id;
  if (auto* hello = std::get_if<HelloRequest>(&request->body);
      local && hello != nullptr && hello->ring != 0)
    hand_out_ring(client, asker, *hello);
  if (!turns.add(client, std::move(*request), message.size()))
    deny(client, asker, id, ErrorCode::kResourceExhausted,
         fmt::format("{} requests of this client wait for an answer: limits.client_requests",
                     turns.limits().client_requests));
}

void Gateway::State::deliver_some() {
  // What is done at once ends in here, and need not wake us.
  waits = false;
  deliver_those_due();
  if (turns.waiting() == 0) return;
  waits = true;  // what ended since somebody was found to have enough under way woke nobody
  deliver_those_due();
  if (turns.waiting() == 0) waits = false;
}

void Gateway::State::deliver_those_due() {
  while (auto next = turns.next()) {
    const bool alone = next->load->under_way == 1;  // nothing of its client's could be overtaken
    next->request.ticket = ticket(next->load);
    deliver(next->client, next->request, alone);
  }
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

void Gateway::State::deliver(const ClientId& client, Request& request, bool alone) {
  counters.requests++;
  const std::uint64_t id = request.id;
  std::string reason;
  try {
    if (alone && setup.at_once && setup.at_once(client, request)) return;
    return setup.sink(client, std::move(request));
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
    reason = "unknown exception";
  }
  counters.sink_failures++;
  spdlog::error("gateway: the service failed on a request: {}", reason);
  refuse(client, id, {ErrorCode::kInternal, "the service failed on this request"});
}

void Gateway::State::malformed(const ClientId& client, std::uint64_t id, const Error& error) {
  counters.malformed++;
  refuse(client, id, error);
}

void Gateway::State::refuse(const ClientId& client, std::uint64_t id, const Error& error) {
  send(client, nlohmann::json::to_msgpack(error_reply(id, error)));
}

}  // namespace penstock
