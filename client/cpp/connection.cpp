#include "client/cpp/connection.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <tuple>
#include <zmq.hpp>

namespace penstock::client {
namespace {

// Heartbeats find a service that stopped answering without closing.
constexpr int kHeartbeatMs = 2000;
constexpr int kHeartbeatTimeoutMs = 6000;
constexpr int kHeartbeatTtlMs =
    10000;  // the service hears nothing for so long: it closes the connection
constexpr int kReconnectMs = 100;
constexpr int kMaxReconnectMs = 2000;
// While a callback is slow, events wait here rather than be dropped by the service.
constexpr int kReceiveQueue = 100000;
constexpr std::int64_t kMaxMessageBytes = std::int64_t{1} << 30;
// Messages handled before the caller gets a turn at deadlines and requests.
constexpr int kMessagesPerPoll = 256;
constexpr const char* kMonitorEndpoint = "inproc://connection-state";

}  // namespace

struct Connection::Sockets {
  zmq::context_t context{1};
  zmq::socket_t dealer{context, zmq::socket_type::dealer};
  zmq::socket_t monitor{context, zmq::socket_type::pair};
  int wake_fd = -1;
  bool has_keys = false;

  ~Sockets() {
    if (wake_fd >= 0) ::close(wake_fd);
  }
  /// The event number of the next connection change, if there is one.
  struct Change {
    std::uint16_t event = 0;
    std::uint32_t value = 0;
  };
  std::optional<Change> next_change();
  void tell_changes(const Listener& listener);
  void tell_messages(const Listener& listener);
};

std::optional<Connection::Sockets::Change> Connection::Sockets::next_change() {
  zmq::message_t event;
  if (!monitor.recv(event, zmq::recv_flags::dontwait)) return std::nullopt;
  Change change;
  if (event.size() >= sizeof change.event + sizeof change.value) {
    std::memcpy(&change.event, event.data(), sizeof change.event);
    std::memcpy(&change.value, event.data<char>() + sizeof change.event, sizeof change.value);
  }
  while (event.more() && monitor.recv(event, zmq::recv_flags::dontwait)) {
  }
  return change;
}

void Connection::Sockets::tell_changes(const Listener& listener) {
  while (auto change = next_change()) {
    if (change->event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) listener.connected();
    if (change->event == ZMQ_EVENT_DISCONNECTED) listener.disconnected();
    if (!listener.refused) continue;
    if (change->event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
      listener.refused("this client's key is not on its allow-list");
    if (change->event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
        change->value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
      listener.refused(has_keys ? "it asks for no key, this client shows one"
                                : "it asks for a key: give key_file and server_key");
  }
}

void Connection::Sockets::tell_messages(const Listener& listener) {
  for (int i = 0; i < kMessagesPerPoll; ++i) {
    zmq::message_t message;
    if (!dealer.recv(message, zmq::recv_flags::dontwait)) return;
    // A reply of a new connection must not be taken for one of the old: first what changed.
    tell_changes(listener);
    std::size_t frames = 1;
    std::uint64_t number = 0;
    for (bool more = message.more(); more; ++frames) {
      zmq::message_t frame;
      if (!dealer.recv(frame, zmq::recv_flags::dontwait)) break;
      more = frame.more();
      if (frame.size() == sizeof number) std::memcpy(&number, frame.data(), sizeof number);
    }
    if (frames == 1 || (frames == 2 && number != 0))
      listener.message({message.data<std::uint8_t>(), message.size()}, number);
  }
}

Connection::Connection(const std::string& endpoint, const std::string& identity,
                       const std::optional<Keys>& keys)
    : sockets_(std::make_unique<Sockets>()) {
  auto& dealer = sockets_->dealer;
  sockets_->wake_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (sockets_->wake_fd < 0) {
    throw Error("RESOURCE_EXHAUSTED", std::string("eventfd: ") + std::strerror(errno) +
                                          "; raise the open files limit (ulimit -n)");
  }
  try {
    dealer.set(zmq::sockopt::routing_id, identity);
    dealer.set(zmq::sockopt::linger, 0);
    // What was meant for one life of the service must not reach the next one behind our back.
    dealer.set(zmq::sockopt::immediate, true);
    dealer.set(zmq::sockopt::sndhwm, 0);  // bounded by what the caller has under way
    dealer.set(zmq::sockopt::rcvhwm, kReceiveQueue);
    dealer.set(zmq::sockopt::maxmsgsize, kMaxMessageBytes);
    dealer.set(zmq::sockopt::ipv6, true);
    dealer.set(zmq::sockopt::reconnect_ivl, kReconnectMs);
    dealer.set(zmq::sockopt::reconnect_ivl_max, kMaxReconnectMs);
    dealer.set(zmq::sockopt::heartbeat_ivl, kHeartbeatMs);
    dealer.set(zmq::sockopt::heartbeat_timeout, kHeartbeatTimeoutMs);
    dealer.set(zmq::sockopt::heartbeat_ttl, kHeartbeatTtlMs);
    zmq_socket_monitor(dealer.handle(), kMonitorEndpoint,
                       ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                           ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_DISCONNECTED);
    if (keys) {
      sockets_->has_keys = true;
      dealer.set(zmq::sockopt::curve_secretkey, keys->secret_key);
      dealer.set(zmq::sockopt::curve_publickey, keys->public_key);
      dealer.set(zmq::sockopt::curve_serverkey, keys->server_key);
    }
    sockets_->monitor.set(zmq::sockopt::linger, 0);
    sockets_->monitor.connect(kMonitorEndpoint);
    dealer.connect(endpoint);
  } catch (const zmq::error_t& problem) {
    throw Error("INVALID_ARGUMENT", "cannot connect to '" + endpoint + "': " + problem.what() +
                                        "; give an endpoint such as tcp://127.0.0.1:7411");
  }
}

Connection::~Connection() { zmq_socket_monitor(sockets_->dealer.handle(), nullptr, 0); }

bool Connection::send(const Message& message, std::uint64_t number) {
  using zmq::send_flags;
  auto& dealer = sockets_->dealer;
  const auto try_send = [&] {
    if (number == 0)
      return dealer.send(zmq::buffer(message.data(), message.size()), send_flags::dontwait)
          .has_value();
    return dealer.send(zmq::buffer(message.data(), message.size()),
                       send_flags::dontwait | send_flags::sndmore) &&
           dealer.send(zmq::buffer(&number, sizeof number), send_flags::dontwait);
  };
  if (try_send()) return true;
  // A busy socket takes notice of a new connection up to a millisecond after the monitor told us of
  // it; asking for its events makes it look now.
  std::ignore = dealer.get(zmq::sockopt::events);
  return try_send();
}

bool Connection::wait(std::chrono::milliseconds timeout, int also) {
  std::array<zmq::pollitem_t, 4> items{{{sockets_->dealer.handle(), 0, ZMQ_POLLIN, 0},
                                        {sockets_->monitor.handle(), 0, ZMQ_POLLIN, 0},
                                        {nullptr, sockets_->wake_fd, ZMQ_POLLIN, 0},
                                        {nullptr, also, ZMQ_POLLIN, 0}}};
  try {
    zmq::poll(items.data(), items.size() - (also < 0 ? 1 : 0), timeout);
  } catch (const zmq::error_t& problem) {
    if (problem.num() != EINTR) throw;
    return false;
  }
  std::uint64_t count = 0;
  if (items[2].revents != 0 && ::read(sockets_->wake_fd, &count, sizeof count) < 0) count = 0;
  return items[3].revents != 0;
}

bool Connection::doze(std::chrono::microseconds time) {
  std::array<pollfd, 2> woken{
      {{sockets_->wake_fd, POLLIN, 0}, {sockets_->dealer.get(zmq::sockopt::fd), POLLIN, 0}}};
  const timespec longest{0, std::chrono::nanoseconds(time).count()};
  return ::ppoll(woken.data(), woken.size(), &longest, nullptr) != 0;
}

void Connection::tell(const Listener& listener) {
  sockets_->tell_changes(listener);
  sockets_->tell_messages(listener);
}

void Connection::wake() {
  std::uint64_t one = 1;
  // Fails only when the counter is full, and then the poller is woken anyway.
  [[maybe_unused]] auto written = ::write(sockets_->wake_fd, &one, sizeof one);
}

}  // namespace penstock::client
