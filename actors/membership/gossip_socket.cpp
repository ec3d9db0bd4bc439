#include "actors/membership/gossip_socket.hpp"

#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <zmq.hpp>

namespace penstock {
namespace {

constexpr int kFramesQueued = 64;           // per endpoint; heartbeats: more would only be stale
constexpr std::size_t kMostDealers = 1024;  // endpoints come from outside
constexpr std::chrono::seconds kDealerIdle{60};
constexpr Milliseconds kLongestSleep{500};
constexpr Milliseconds kLeaveWithin{500};
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

/// Connections to the others, by endpoint; each made when first spoken to.
class Dealers {
 public:
  explicit Dealers(zmq::context_t& context) : context_(context) {}

  void send(const std::string& endpoint, const std::vector<std::byte>& frame, TimePoint now) {
    Dealer* dealer = find(endpoint, now);
    if (dealer == nullptr) return;
    dealer->used = now;
    try {
      dealer->socket.send(zmq::buffer(frame.data(), frame.size()), zmq::send_flags::dontwait);
    } catch (const zmq::error_t& e) {
      spdlog::debug("gossip: frame to {} dropped: {}", endpoint, e.what());
    }
  }

  /// Frames already handed over get this long to leave when the sockets close.
  void linger(Milliseconds time) {
    for (auto& [endpoint, dealer] : dealers_)
      dealer.socket.set(zmq::sockopt::linger, static_cast<int>(time.count()));
  }

 private:
  struct Dealer {
    zmq::socket_t socket;
    TimePoint used;
  };

  Dealer* find(const std::string& endpoint, TimePoint now) {
    const auto known = dealers_.find(endpoint);
    if (known != dealers_.end()) return &known->second;
    if (refused_.contains(endpoint)) return nullptr;
    std::erase_if(dealers_,
                  [&](const auto& entry) { return now - entry.second.used > kDealerIdle; });
    if (dealers_.size() >= kMostDealers) return nullptr;
    try {
      return &dealers_.emplace(endpoint, Dealer{connect(endpoint), now}).first->second;
    } catch (const zmq::error_t& e) {
      if (refused_.size() >= kMostDealers) refused_.clear();
      refused_.insert(endpoint);
      spdlog::warn("gossip: cannot connect to '{}': {}", endpoint, e.what());
      return nullptr;
    }
  }

  zmq::socket_t connect(const std::string& endpoint) {
    zmq::socket_t socket(context_, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::sndhwm, kFramesQueued);
    socket.set(zmq::sockopt::immediate, true);
    socket.set(zmq::sockopt::reconnect_ivl, 50);
    socket.set(zmq::sockopt::reconnect_ivl_max, 500);
    socket.set(zmq::sockopt::connect_timeout, 2000);
    socket.set(zmq::sockopt::heartbeat_ivl, 1000);
    socket.set(zmq::sockopt::heartbeat_timeout, 3000);
    socket.set(zmq::sockopt::tcp_keepalive, 1);
    socket.set(zmq::sockopt::ipv6, true);  // IPv4 goes on working
    socket.connect(endpoint);
    return socket;
  }

  zmq::context_t& context_;
  std::map<std::string, Dealer> dealers_;
  std::set<std::string> refused_;  // no endpoint at all: said once, not tried again
};

}  // namespace

struct GossipSocket::State {
  Setup setup;
  zmq::context_t context{1};
  zmq::socket_t router{context, zmq::socket_type::router};
  int wake_fd = -1;
  std::thread thread;

  mutable std::mutex mutex;  // for the three below
  std::vector<std::function<void(StaticMembership&, Dealers&)>> requests;
  std::vector<MemberChange> members;
  bool stopping = false;

  ~State() {
    if (wake_fd >= 0) ::close(wake_fd);
  }

  Result<void> bind();
  void wake() const;
  void post(std::function<void(StaticMembership&, Dealers&)> request);
  void run();
  void wait(TimePoint until);
  void receive(StaticMembership& membership);
  bool serve_requests(StaticMembership& membership, Dealers& dealers);
  void report(StaticMembership& membership);
  void complain(const StaticMembership& membership);

  std::uint64_t malformed_told = 0;
  bool duplicate_told = false;
};

Result<void> GossipSocket::State::bind() {
  try {
    router.set(zmq::sockopt::linger, 0);
    router.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kMaxGossipBytes));
    router.set(zmq::sockopt::tcp_keepalive, 1);
    // Only for literals: with it "tcp://*" would need a machine that has IPv6.
    router.set(zmq::sockopt::ipv6, setup.bind.starts_with("tcp://["));
    router.bind(setup.bind);
  } catch (const zmq::error_t& e) {
    const auto code =
        e.num() == EADDRINUSE ? ErrorCode::kAlreadyExists : ErrorCode::kInvalidArgument;
    return fail(code, "gossip: cannot bind '{}': {}", setup.bind, e.what());
  }
  auto endpoint = advertised(router.get(zmq::sockopt::last_endpoint), setup.advertise);
  if (!endpoint) return tl::unexpected(endpoint.error());
  setup.self.gossip_endpoint = std::move(*endpoint);
  // What the others would refuse is better refused here.
  auto readable = decode_member(encode(setup.self));
  if (!readable) return tl::unexpected(readable.error());
  wake_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd < 0) return fail(ErrorCode::kResourceExhausted, "gossip: eventfd: errno {}", errno);
  return {};
}

void GossipSocket::State::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_fd, &one, sizeof(one));
}

void GossipSocket::State::post(std::function<void(StaticMembership&, Dealers&)> request) {
  {
    const std::lock_guard lock(mutex);
    requests.push_back(std::move(request));
  }
  wake();
}

void GossipSocket::State::run() {
  Dealers dealers(context);
  StaticMembership membership(
      setup.self, setup.options,
      {[&](const std::string& endpoint, const std::vector<std::byte>& frame) {
        dealers.send(endpoint, frame, Clock::now());
      }});
  do {
    // What has arrived is heard before anybody is declared silent: after a long pause of this
    // process (SIGSTOP) all deadlines are over while the heartbeats wait in the socket.
    receive(membership);
    membership.tick(Clock::now());
    report(membership);
    complain(membership);
    wait(membership.next_tick());
  } while (serve_requests(membership, dealers));
  router.close();
}

void GossipSocket::State::wait(TimePoint until) {
  const TimePoint now = Clock::now();
  // Rounded up: a deadline that is 0.4 ms away must not become a spin.
  const auto left = until <= now                  ? Milliseconds(0)
                    : until - now > kLongestSleep ? kLongestSleep
                                                  : std::chrono::ceil<Milliseconds>(until - now);
  std::array<zmq::pollitem_t, 2> items = {
      {{router.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, wake_fd, ZMQ_POLLIN, 0}}};
  try {
    zmq::poll(items.data(), items.size(), left);
  } catch (const zmq::error_t& e) {
    if (e.num() != EINTR) spdlog::error("gossip: poll: {}", e.what());
  }
  std::uint64_t count = 0;
  [[maybe_unused]] const auto read = ::read(wake_fd, &count, sizeof(count));
}

void GossipSocket::State::receive(StaticMembership& membership) {
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
    membership.receive(std::span(part.data<std::byte>(), part.size()), Clock::now());
  }
}

/// False: stop.
bool GossipSocket::State::serve_requests(StaticMembership& membership, Dealers& dealers) {
  std::vector<std::function<void(StaticMembership&, Dealers&)>> batch;
  bool stop = false;
  {
    const std::lock_guard lock(mutex);
    batch.swap(requests);
    stop = stopping;
  }
  for (const auto& request : batch) request(membership, dealers);
  return !stop;
}

void GossipSocket::State::report(StaticMembership& membership) {
  const std::vector<MemberChange> changes = membership.take_changes();
  if (changes.empty()) return;
  {
    const std::lock_guard lock(mutex);
    members = membership.members();
  }
  for (const MemberChange& change : changes) {
    spdlog::debug("gossip: member '{}' (incarnation {}) is {}: {}", change.record.node,
                  change.record.incarnation, name_of(change.state), change.reason);
    if (setup.changed) setup.changed(change);
  }
}

void GossipSocket::State::complain(const StaticMembership& membership) {
  if (membership.duplicate_names() > 0 && !std::exchange(duplicate_told, true))
    spdlog::error(
        "gossip: another node calls itself '{}' too and started later; give each node "
        "its own name",
        setup.self.node);
  // The first, then each time their number has doubled: a flood does not become a flood of lines.
  if (membership.malformed_frames() > malformed_told * 2) {
    malformed_told = membership.malformed_frames();
    spdlog::warn("gossip: {} malformed frames dropped so far", malformed_told);
  }
}

GossipSocket::GossipSocket() : state_(std::make_unique<State>()) {}

Result<std::unique_ptr<GossipSocket>> GossipSocket::start(Setup setup) {
  std::unique_ptr<GossipSocket> gossip(new GossipSocket);
  gossip->state_->setup = std::move(setup);
  auto bound = gossip->state_->bind();
  if (!bound) return tl::unexpected(bound.error());
  gossip->state_->thread = std::thread([state = gossip->state_.get()] { state->run(); });
  return gossip;
}

GossipSocket::~GossipSocket() {
  if (!state_->thread.joinable()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake();
  state_->thread.join();
}

const MemberRecord& GossipSocket::self() const { return state_->setup.self; }

void GossipSocket::leave() {
  auto told = std::make_shared<std::promise<void>>();
  auto done = told->get_future();
  state_->post([told](StaticMembership& membership, Dealers& dealers) {
    membership.leave(Clock::now());
    dealers.linger(kLeaveLinger);
    told->set_value();
  });
  done.wait_for(kLeaveWithin);
}

void GossipSocket::suspect(const std::string& node) {
  state_->post(
      [node](StaticMembership& membership, Dealers&) { membership.suspect(node, Clock::now()); });
}

std::vector<MemberChange> GossipSocket::members() const {
  const std::lock_guard lock(state_->mutex);
  return state_->members;
}

}  // namespace penstock
