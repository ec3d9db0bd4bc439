#include "actors/gateway/gateway.hpp"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <csignal>
#include <optional>
#include <thread>
#include <tuple>
#include <zmq.hpp>

#include "actors/gateway/endpoint.hpp"
#include "actors/gateway/outbox.hpp"
#include "actors/protocol/reply.hpp"

namespace penstock {
namespace {

constexpr int kMaxMessagesPerPipe = 4096;  // outgoing; bytes are bounded by the Outbox
constexpr int kMaxRequestsPerPipe = 64;    // incoming, unread
constexpr int kLingerMs = 200;
/// Requests read before outgoing messages get their turn.
constexpr int kRequestsPerTurn = 256;
/// Requests given to the sink and not dealt with yet. With so many, no more are read: they stay in
/// their clients' pipes, so a flood costs its senders time, not us memory or a long stop.
constexpr std::size_t kMostUnderWay = 4096;

/// One message of a client: its identity and what it sent. More than one frame is not ours.
struct Incoming {
  ClientId client;
  zmq::message_t payload;
  std::size_t frames = 0;
};

}  // namespace

struct Gateway::State {
  explicit State(Setup given) : setup(std::move(given)), outbox(setup.max_unsent_bytes) {}

  Result<void> open();
  Result<void> bind(const std::string& endpoint);
  void run();
  void receive_some();
  bool receive(Incoming& incoming);
  void answer(Incoming incoming);
  void deliver(ClientId client, Request request);
  void refuse(const ClientId& client, std::uint64_t id, const Error& error);
  void flush();
  void transmit(Outgoing message);
  void send(const ClientId& client, const nlohmann::json& message);
  bool may_receive() const { return under_way < kMostUnderWay; }
  std::shared_ptr<void> ticket();

  struct AtomicCounters {
    std::atomic<std::uint64_t> requests{0}, malformed{0}, sink_failures{0}, sent{0}, unroutable{0},
        overflowed{0};
  };

  const Setup setup;
  AtomicCounters counters;
  Outbox outbox;
  zmq::context_t context{1};
  zmq::socket_t router;
  std::vector<std::string> endpoints;
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
  return {now.requests, now.malformed, now.sink_failures, now.sent, now.unroutable, now.overflowed};
}

Result<void> Gateway::State::open() {
  router = zmq::socket_t(context, zmq::socket_type::router);
  router.set(zmq::sockopt::router_handover, true);
  router.set(zmq::sockopt::router_mandatory, true);
  router.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(setup.max_request_bytes));
  router.set(zmq::sockopt::sndhwm, kMaxMessagesPerPipe);
  router.set(zmq::sockopt::rcvhwm, kMaxRequestsPerPipe);
  router.set(zmq::sockopt::linger, kLingerMs);
  for (const std::string& endpoint : setup.bind)
    if (auto bound = bind(endpoint); !bound) return bound;
  return {};
}

Result<void> Gateway::State::bind(const std::string& endpoint) {
  if (auto prepared = prepare_endpoint(endpoint); !prepared) return prepared;
  try {
    router.set(zmq::sockopt::ipv6, is_ipv6_literal(endpoint));
    router.bind(endpoint);
    endpoints.push_back(router.get(zmq::sockopt::last_endpoint));
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
      std::array<zmq::pollitem_t, 2> items = {
          {{nullptr, outbox.wake_fd(), ZMQ_POLLIN, 0}, {router.handle(), 0, ZMQ_POLLIN, 0}}};
      zmq::poll(items.data(), may_receive() ? 2 : 1, std::chrono::milliseconds(-1));
      receive_some();
      flush();
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
  incoming.client = identity.to_string();
  // ROUTER hands over whole messages: the frames are there once the first is.
  for (bool more = identity.more(); more;) {
    zmq::message_t frame;
    if (!router.recv(frame, zmq::recv_flags::dontwait)) break;
    more = frame.more();
    if (incoming.frames++ == 0) incoming.payload = std::move(frame);
  }
  return true;
}

void Gateway::State::answer(Incoming incoming) {
  if (incoming.frames != 1)
    return refuse(incoming.client, 0,
                  {ErrorCode::kInvalidArgument,
                   fmt::format("a request is one frame, found {}; use a DEALER socket, which adds "
                               "no empty frame",
                               incoming.frames)});
  auto owner = std::make_shared<zmq::message_t>(std::move(incoming.payload));
  std::span message(static_cast<const std::byte*>(owner->data()), owner->size());
  auto request = decode_request(message, owner);
  if (!request) return refuse(incoming.client, request.error().id, request.error().error);
  deliver(std::move(incoming.client), std::move(*request));
}

/// Lives as long as its request, on whatever thread; the gateway outlives both.
std::shared_ptr<void> Gateway::State::ticket() {
  under_way++;
  return {this, [](State* state) {
            if (state->under_way.fetch_sub(1) == kMostUnderWay) state->outbox.wake();
          }};
}

void Gateway::State::deliver(ClientId client, Request request) {
  counters.requests++;
  request.ticket = ticket();
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
  if (!outbox.push(client, nlohmann::json::to_msgpack(message))) counters.overflowed++;
}

void Gateway::State::flush() {
  for (Outgoing& message : outbox.take()) transmit(std::move(message));
}

void Gateway::State::transmit(Outgoing message) {
  // The identity frame alone meets a full or missing pipe; the payload then follows or is dropped
  // with it.
  try {
    if (!router.send(zmq::buffer(message.client),
                     zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
      counters.overflowed++;
      return;
    }
    std::ignore = router.send(message.payload, zmq::send_flags::dontwait);
    counters.sent++;
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH) throw;
    counters.unroutable++;
    if (setup.gone) setup.gone(message.client);
  }
}

}  // namespace penstock
