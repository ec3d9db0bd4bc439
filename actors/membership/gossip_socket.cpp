#include "actors/membership/gossip_socket.hpp"

#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "actors/gateway/connections.hpp"
#include "actors/gateway/doorman.hpp"
#include "actors/gateway/endpoint.hpp"
#include "actors/membership/dealers.hpp"
#include "actors/membership/resolver.hpp"

namespace penstock {
namespace {

constexpr int kMostSockets = 4096;
constexpr std::size_t kMostConnections = 4096;  // from others
constexpr int kHandshakeMs = 3000;
constexpr Milliseconds kLongestSleep{500};
constexpr Milliseconds kLeaveWithin{500};
constexpr Milliseconds kRemoveWithin{2000};
constexpr Milliseconds kLeaveLinger{200};

std::string port_of(const std::string& endpoint) {
  return endpoint.substr(endpoint.rfind(':') + 1);
}

/// What others connect to.
Result<std::string> advertised(const std::string& bound, const std::string& advertise) {
  std::string endpoint = advertise.empty() ? bound : advertise;
  if (endpoint.ends_with(":*")) endpoint.replace(endpoint.size() - 1, 1, port_of(bound));
  for (const char* any : {"tcp://0.0.0.0:", "tcp://[::]:", "tcp://*:"})
    if (endpoint.starts_with(any))
      return fail(ErrorCode::kInvalidArgument,
                  "gossip: '{}' is every interface, which others cannot connect to; bind one "
                  "address or set what to advertise (tcp://ADDRESS:*)",
                  endpoint);
  return endpoint;
}

/// Who has the common key is a member.
AllowList members_of(const std::optional<KeyPair>& keys) {
  AllowList members;
  if (keys) members.add(keys->public_key, {"member", Role::kAdmin});
  return members;
}

zmq::context_t roomy_context() {
  zmq::context_t context(1);
  context.set(zmq::ctxopt::max_sockets, kMostSockets);
  return context;
}

}  // namespace

struct GossipSocket::State {
  using Request = std::function<void(Swim&)>;

  Setup setup;
  zmq::context_t context = roomy_context();
  std::optional<Audit> audit;  // as the doorman and the connections
  std::optional<Doorman> doorman;
  zmq::socket_t router{context, zmq::socket_type::router};
  std::optional<Connections> connections;
  Dealers dealers{context};  // the thread's, once it runs
  int wake_fd = -1;
  std::atomic<std::uint32_t> load = 0;

  mutable std::mutex requests_mutex;
  std::vector<Request> requests;
  bool stopping = false;

  mutable std::mutex swim_mutex;
  std::unique_ptr<Swim> swim;
  std::unique_ptr<Resolver> resolver;  // posts requests: goes before them
  std::thread thread;

  ~State() {
    if (wake_fd >= 0) ::close(wake_fd);
  }

  Result<void> bind();
  void make_swim();
  void wake() const;
  void post(Request request);
  void run();
  void wait(TimePoint until);
  void receive();
  bool serve_requests();
  void complain();

  std::uint64_t malformed_told = 0;
  bool duplicate_told = false;
  bool removed_told = false;
  bool outrun_told = false;
};

Result<void> GossipSocket::State::bind() {
  try {
    router.set(zmq::sockopt::linger, 0);
    router.set(zmq::sockopt::rcvhwm, 0);  // why: Gateway::State::open()
    router.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kMaxGossipBytes));
    router.set(zmq::sockopt::tcp_keepalive, 1);
    // Only for literals: with it "tcp://*" would need a machine that has IPv6.
    router.set(zmq::sockopt::ipv6, setup.bind.starts_with("tcp://["));
    router.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
    audit.emplace(setup.audit_lines_per_s);
    doorman.emplace(context, setup.keys, members_of(setup.keys), *audit);
    connections.emplace(context, router, kMostConnections, *audit);
    doorman->prepare(router, setup.bind);
    dealers.show(setup.keys);
    router.bind(setup.bind);
    connections->listens(router.get(zmq::sockopt::last_endpoint));
  } catch (const zmq::error_t& e) {
    return tl::unexpected(bind_error("gossip.bind", setup.bind, e.num()));
  }
  auto endpoint = advertised(router.get(zmq::sockopt::last_endpoint), setup.advertise);
  if (!endpoint) return tl::unexpected(endpoint.error());
  setup.self.gossip_endpoint = std::move(*endpoint);
  // What the others would refuse is better refused here.
  auto readable = store_record(encode(setup.self));
  if (!readable) return tl::unexpected(readable.error());
  wake_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd < 0) return fail(ErrorCode::kResourceExhausted, "gossip: eventfd: errno {}", errno);
  return {};
}

void GossipSocket::State::make_swim() {
  Swim::Network network;
  network.send = [this](const std::string& endpoint, const GossipFrame& frame) {
    dealers.send(endpoint, encode(frame), Clock::now());
  };
  network.forget = [this](const std::string& endpoint) { dealers.close(endpoint); };
  network.resolve = [this](const std::string& seed) { resolver->look_up(seed); };
  swim = std::make_unique<Swim>(setup.self, setup.options, std::move(network));
  resolver = std::make_unique<Resolver>(
      [this](const std::string& seed, std::vector<std::string> endpoints) {
        post([seed, endpoints = std::move(endpoints)](Swim& swim) {
          swim.resolved(seed, endpoints, Clock::now());
        });
      });
}

void GossipSocket::State::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_fd, &one, sizeof(one));
}

void GossipSocket::State::post(Request request) {
  {
    const std::lock_guard lock(requests_mutex);
    requests.push_back(std::move(request));
  }
  wake();
}

void GossipSocket::State::run() {
  bool go_on = true;
  while (go_on) {
    std::vector<MemberChange> changes;
    TimePoint next;
    {
      const std::lock_guard lock(swim_mutex);
      go_on = serve_requests();
      connections->serve();
      doorman->serve();
      swim->set_load(load.load(std::memory_order_relaxed));
      for (const std::string& endpoint : dealers.take_closed())
        swim->suspect_at(endpoint, Clock::now());
      // What has arrived is heard before anybody is declared silent: after a long pause of this
      // process (SIGSTOP) all deadlines are over while answers wait in the socket.
      receive();
      swim->tick(Clock::now());
      changes = swim->take_changes();
      next = swim->next_tick();
      complain();
    }
    for (MemberChange& change : changes) {
      spdlog::debug("gossip: member '{}' (incarnation {}) is {}: {}", change.record.node,
                    change.record.incarnation, name_of(change.state), change.reason);
      if (setup.changed) setup.changed(std::move(change));
    }
    dealers.flush(Clock::now());
    if (go_on) wait(next);
  }
  connections.reset();
  router.close();
}

void GossipSocket::State::wait(TimePoint until) {
  std::vector<zmq::pollitem_t> items = {{router.handle(), 0, ZMQ_POLLIN, 0},
                                        {nullptr, wake_fd, ZMQ_POLLIN, 0},
                                        {connections->handle(), 0, ZMQ_POLLIN, 0}};
  if (doorman->asks_for_keys()) items.push_back({doorman->handle(), 0, ZMQ_POLLIN, 0});
  until = std::min(until, dealers.wait_for(items));
  const TimePoint now = Clock::now();
  // Rounded up: a deadline that is 0.4 ms away must not become a spin.
  const auto left = until <= now                  ? Milliseconds(0)
                    : until - now > kLongestSleep ? kLongestSleep
                                                  : std::chrono::ceil<Milliseconds>(until - now);
  try {
    zmq::poll(items.data(), items.size(), left);
  } catch (const zmq::error_t& e) {
    if (e.num() != EINTR) spdlog::error("gossip: poll: {}", e.what());
  }
  std::uint64_t count = 0;
  [[maybe_unused]] const auto read = ::read(wake_fd, &count, sizeof(count));
}

void GossipSocket::State::receive() {
  constexpr int kFramesAtOnce = 1000;
  for (int i = 0; i < kFramesAtOnce; ++i) {
    zmq::message_t part;
    bool last = false;
    do {
      try {
        if (!router.recv(part, zmq::recv_flags::dontwait)) return;
      } catch (const zmq::error_t& e) {
        if (e.num() != EINTR) spdlog::error("gossip: receive: {}", e.what());
        return;
      }
      last = !part.more();
    } while (!last);
    swim->receive(std::span(part.data<std::byte>(), part.size()), Clock::now());
  }
}

/// False: stop.
bool GossipSocket::State::serve_requests() {
  std::vector<Request> batch;
  bool stop = false;
  {
    const std::lock_guard lock(requests_mutex);
    batch.swap(requests);
    stop = stopping;
  }
  for (const auto& request : batch) request(*swim);
  return !stop;
}

void GossipSocket::State::complain() {
  const Swim::Counters& counters = swim->counters();
  if (counters.duplicate_names > 0 && !std::exchange(duplicate_told, true))
    spdlog::error(
        "gossip: another node calls itself '{}' too and started later; give each node "
        "its own name",
        setup.self.node);
  if (swim->removed() && !std::exchange(removed_told, true))
    spdlog::error(
        "gossip: the others hold this node for gone (an operator removed it, or another process "
        "took its endpoint); restart it to come back");
  if (swim->outrun_by() != 0 && !std::exchange(outrun_told, true))
    spdlog::error(
        "gossip: an earlier run of this node started at a later time by its clock, and the others "
        "take this one for older: set the clock right (ours is {:.1f} s behind) and start the node "
        "again",
        static_cast<double>(swim->outrun_by() - setup.self.incarnation) / 1e9);
  // The first, then each time their number has doubled: a flood does not become a flood of lines.
  if (counters.malformed_frames > malformed_told * 2) {
    malformed_told = counters.malformed_frames;
    spdlog::warn("gossip: {} malformed frames dropped so far", malformed_told);
  }
}

GossipSocket::GossipSocket() : state_(std::make_unique<State>()) {}

Result<std::unique_ptr<GossipSocket>> GossipSocket::start(Setup setup) {
  std::unique_ptr<GossipSocket> gossip(new GossipSocket);
  State& state = *gossip->state_;
  state.setup = std::move(setup);
  auto bound = state.bind();
  if (!bound) return tl::unexpected(bound.error());
  state.make_swim();
  state.thread = std::thread([&state] { state.run(); });
  return gossip;
}

GossipSocket::~GossipSocket() {
  if (!state_->thread.joinable()) return;
  {
    const std::lock_guard lock(state_->requests_mutex);
    state_->stopping = true;
  }
  state_->wake();
  state_->thread.join();
  state_->resolver = nullptr;  // what it still finds has nowhere to go
}

const MemberRecord& GossipSocket::self() const { return state_->setup.self; }

void GossipSocket::drain() {
  state_->post([](Swim& swim) { swim.drain(Clock::now()); });
}

void GossipSocket::leave() {
  auto told = std::make_shared<std::promise<void>>();
  auto done = told->get_future();
  state_->post([told, &dealers = state_->dealers](Swim& swim) {
    swim.leave(Clock::now());
    dealers.linger(kLeaveLinger);
    told->set_value();
  });
  done.wait_for(kLeaveWithin);
}

void GossipSocket::suspect(const std::string& node) {
  state_->post([node](Swim& swim) { swim.suspect(node, Clock::now()); });
}

Result<void> GossipSocket::remove(const std::string& node, bool force) {
  auto answer = std::make_shared<std::promise<Result<void>>>();
  auto done = answer->get_future();
  state_->post([node, force, answer](Swim& swim) {
    answer->set_value(swim.remove(node, force, Clock::now()));
  });
  if (done.wait_for(kRemoveWithin) != std::future_status::ready)
    return fail(ErrorCode::kDeadlineExceeded, "gossip did not answer within {} ms; ask again",
                kRemoveWithin.count());
  return done.get();
}

std::uint64_t GossipSocket::refused() const { return state_->audit->count(); }

void GossipSocket::set_load(std::uint32_t load) {
  state_->load.store(load, std::memory_order_relaxed);
}

std::vector<MemberChange> GossipSocket::members() const {
  const std::lock_guard lock(state_->swim_mutex);
  return state_->swim->members();
}

}  // namespace penstock
