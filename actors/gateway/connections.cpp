#include "actors/gateway/connections.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

namespace penstock {
namespace {

constexpr const char* kMonitor = "inproc://connections";
constexpr int kEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;

std::string_view why_failed(std::uint16_t event, std::int32_t value) {
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) return "it does not speak ZeroMQ, or nothing";
  if (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
    return "it shows no key where one is asked for, or one where none is";
  return "its handshake is broken, or meant for another key than this service's";
}

}  // namespace

Connections::Connections(zmq::context_t& context, zmq::socket_t& router, std::size_t most,
                         Audit& audit)
    : router_(router), most_(most), audit_(audit) {
  if (zmq_socket_monitor(router.handle(), kMonitor, kEvents) != 0) throw zmq::error_t();
  monitor_ = zmq::socket_t(context, zmq::socket_type::pair);
  monitor_.set(zmq::sockopt::linger, 0);
  monitor_.set(zmq::sockopt::rcvhwm, 0);
  monitor_.connect(kMonitor);
}

// The events stop before their reader goes: ZeroMQ's own thread would wait for it for ever.
Connections::~Connections() { zmq_socket_monitor(router_.handle(), nullptr, 0); }

void Connections::listens(const std::string& endpoint) {
  const bool ipc = endpoint.starts_with("ipc://");
  places_.insert(endpoint.substr(ipc ? std::strlen("ipc://") : endpoint.rfind(':') + 1));
}

bool Connections::is_ours(const sockaddr_storage& own) const {
  if (own.ss_family == AF_UNIX)
    return places_.contains(reinterpret_cast<const sockaddr_un&>(own).sun_path);
  const in_port_t port = own.ss_family == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                             : reinterpret_cast<const sockaddr_in&>(own).sin_port;
  return places_.contains(std::to_string(ntohs(port)));
}

void Connections::serve() {
  zmq::message_t event;
  while (monitor_.recv(event, zmq::recv_flags::dontwait)) {
    std::uint16_t what = 0;
    std::int32_t fd = -1;
    if (event.size() >= sizeof what + sizeof fd) {
      std::memcpy(&what, event.data(), sizeof what);
      std::memcpy(&fd, event.data<char>() + sizeof what, sizeof fd);
    }
    std::string endpoint;
    while (event.more() && monitor_.recv(event, zmq::recv_flags::dontwait))
      endpoint = event.to_string();
    if (what == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL || what == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
      audit_.refused("a connection to " + endpoint, why_failed(what, fd));
    if (what == ZMQ_EVENT_DISCONNECTED) open_.erase(fd);
    if (what != ZMQ_EVENT_ACCEPTED) continue;
    open_.insert(fd);
    if (open_.size() <= most_) continue;
    audit_.refused("a connection", fmt::format("limits.connections is {}", most_));
    cut(fd);
  }
}

void Connections::cut(int fd) {
  if (!open_.contains(fd)) return;
  // ZeroMQ may have closed it and somebody else have its number by now: what is looked at and what
  // is shut down must be the same file, so both are done to a duplicate.
  const int same = ::dup(fd);
  if (same < 0) return;
  sockaddr_storage peer{}, own{};
  socklen_t peer_size = sizeof peer, own_size = sizeof own;
  int accepting = 1;
  socklen_t size = sizeof accepting;
  const bool connected = ::getpeername(same, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
                         ::getsockname(same, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
                         ::getsockopt(same, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &size) == 0;
  if (connected && accepting == 0 && is_ours(own)) ::shutdown(same, SHUT_RDWR);
  ::close(same);
}

}  // namespace penstock
