#include "actors/membership/dealers.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr int kFramesQueued = 64;  // per endpoint; more would only be stale
constexpr std::size_t kFramesWaiting = 8;
constexpr Milliseconds kWaitForConnection{300};
constexpr std::size_t kMostWatched = 128;
constexpr std::size_t kMostDealers = 1000;  // endpoints come from outside
constexpr std::chrono::seconds kIdle{60};

bool hand_over(zmq::socket_t& socket, const std::string& endpoint,
               const std::vector<std::byte>& frame) {
  try {
    return socket.send(zmq::buffer(frame.data(), frame.size()), zmq::send_flags::dontwait)
        .has_value();
  } catch (const zmq::error_t& e) {
    spdlog::debug("gossip: frame to {} dropped: {}", endpoint, e.what());
    return true;
  }
}

}  // namespace

void Dealers::send(const std::string& endpoint, std::vector<std::byte> frame, TimePoint now) {
  Dealer* dealer = find(endpoint, now);
  if (dealer == nullptr) return;
  dealer->used = now;
  if (dealer->waiting.empty() && hand_over(dealer->socket, endpoint, frame)) return;
  if (dealer->waiting.size() >= kFramesWaiting) dealer->waiting.pop_front();
  dealer->waiting.emplace_back(now + kWaitForConnection, std::move(frame));
}

void Dealers::flush(TimePoint now) {
  for (auto& [endpoint, dealer] : dealers_) {
    auto& waiting = dealer.waiting;
    while (!waiting.empty() && (waiting.front().first <= now ||
                                hand_over(dealer.socket, endpoint, waiting.front().second)))
      waiting.pop_front();
  }
}

std::vector<std::string> Dealers::take_closed() {
  std::vector<std::string> closed;
  for (auto& [endpoint, dealer] : dealers_) {
    if (!dealer.monitor) continue;
    zmq::message_t part;
    bool seen = false;
    while (dealer.monitor.recv(part, zmq::recv_flags::dontwait)) seen = true;
    if (seen) closed.push_back(endpoint);
  }
  return closed;
}

TimePoint Dealers::wait_for(std::vector<zmq::pollitem_t>& items) {
  TimePoint latest = TimePoint::max();
  for (auto& [endpoint, dealer] : dealers_) {
    if (dealer.monitor) items.push_back({dealer.monitor.handle(), 0, ZMQ_POLLIN, 0});
    if (dealer.waiting.empty()) continue;
    items.push_back({dealer.socket.handle(), 0, ZMQ_POLLOUT, 0});
    latest = std::min(latest, dealer.waiting.front().first);
  }
  return latest;
}

void Dealers::linger(Milliseconds time) {
  for (auto& [endpoint, dealer] : dealers_)
    dealer.socket.set(zmq::sockopt::linger, static_cast<int>(time.count()));
}

Dealers::Dealer* Dealers::find(const std::string& endpoint, TimePoint now) {
  const auto known = dealers_.find(endpoint);
  if (known != dealers_.end()) return &known->second;
  if (refused_.contains(endpoint)) return nullptr;
  make_room(now);
  try {
    Dealer dealer{connect(endpoint), now};
    if (dealers_.size() < kMostWatched) watch(dealer);
    return &dealers_.emplace(endpoint, std::move(dealer)).first->second;
  } catch (const zmq::error_t& e) {
    if (refused_.size() >= kMostDealers) refused_.clear();
    refused_.insert(endpoint);
    spdlog::warn("gossip: cannot connect to '{}': {}", endpoint, e.what());
    return nullptr;
  }
}

/// Whoever was spoken to longest ago is connected anew when it is his turn again.
void Dealers::make_room(TimePoint now) {
  std::erase_if(dealers_, [&](const auto& entry) { return now - entry.second.used > kIdle; });
  if (dealers_.size() < kMostDealers) return;
  dealers_.erase(
      std::min_element(dealers_.begin(), dealers_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
}

// Nothing but closing is reported: whatever arrives at the monitor means that.
void Dealers::watch(Dealer& dealer) {
  const std::string address = fmt::format("inproc://gossip-closed-{}", ++monitors_);
  if (zmq_socket_monitor(dealer.socket.handle(), address.c_str(), ZMQ_EVENT_DISCONNECTED) != 0)
    return;
  dealer.monitor = zmq::socket_t(context_, zmq::socket_type::pair);
  dealer.monitor.set(zmq::sockopt::linger, 0);
  dealer.monitor.connect(address);
}

zmq::socket_t Dealers::connect(const std::string& endpoint) {
  zmq::socket_t socket(context_, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, kFramesQueued);
  socket.set(zmq::sockopt::immediate, true);
  socket.set(zmq::sockopt::reconnect_ivl, 50);
  socket.set(zmq::sockopt::reconnect_ivl_max, 500);
  socket.set(zmq::sockopt::connect_timeout, 1000);
  // A connection whose other end has vanished ends after 3 s. Not by ZeroMQ's heartbeats:
  // libzmq 4.3 aborts at one when the other end has sent more than is read here, and has hung up.
  socket.set(zmq::sockopt::tcp_maxrt, 3000);
  socket.set(zmq::sockopt::tcp_keepalive, 1);
  socket.set(zmq::sockopt::tcp_keepalive_idle, 1);
  socket.set(zmq::sockopt::tcp_keepalive_intvl, 1);
  socket.set(zmq::sockopt::tcp_keepalive_cnt, 3);
  socket.set(zmq::sockopt::ipv6, true);  // IPv4 goes on working
  if (keys_ && !endpoint.starts_with("ipc://")) {
    const auto bytes = [](const Key& key) { return zmq::buffer(key.data(), key.size()); };
    socket.set(zmq::sockopt::curve_secretkey, bytes(keys_->secret_key));
    socket.set(zmq::sockopt::curve_publickey, bytes(keys_->public_key));
    socket.set(zmq::sockopt::curve_serverkey, bytes(keys_->public_key));
  }
  socket.connect(endpoint);
  return socket;
}

}  // namespace penstock
