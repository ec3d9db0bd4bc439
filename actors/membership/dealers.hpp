// Connections to the gossip endpoints of others, each made when first spoken to. A frame for one
// that is not connected waits a moment for its connection and is dropped then: stale gossip is
// worth nothing. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "actors/clock.hpp"
#include "actors/security/key.hpp"

namespace penstock {

class Dealers {
 public:
  explicit Dealers(zmq::context_t& context) : context_(context) {}

  /// The members' common key pair, to be shown and expected at tcp endpoints from now on.
  void show(std::optional<KeyPair> keys) { keys_ = keys; }
  void send(const std::string& endpoint, std::vector<std::byte> frame, TimePoint now);
  /// Closes the connection, for now: whoever had this endpoint is gone.
  void close(const std::string& endpoint) { dealers_.erase(endpoint); }
  /// Sends what waited for its connection; drops what waited too long.
  void flush(TimePoint now);
  /// Endpoints whose connections were seen to close since the last call. Only the first hundred or
  /// so connections are watched: in larger clusters others notice sooner anyway.
  std::vector<std::string> take_closed();
  /// Appends what to wait for so that flush() has something to do, and take_closed() something to
  /// tell; returns the latest time for it.
  TimePoint wait_for(std::vector<zmq::pollitem_t>& items);
  /// Frames already handed over get this long to leave when the sockets close.
  void linger(Milliseconds time);

 private:
  struct Dealer {
    Dealer(zmq::socket_t connected, TimePoint now) : socket(std::move(connected)), used(now) {}
    /// The monitor's events stop before their reader goes: ZeroMQ's own thread would wait for ever
    /// with one that nobody takes, and with it every other connection.
    ~Dealer() {
      if (socket && monitor) zmq_socket_monitor(socket.handle(), nullptr, 0);
    }
    Dealer(Dealer&&) = default;
    Dealer& operator=(Dealer&&) = delete;

    zmq::socket_t socket;
    TimePoint used;
    zmq::socket_t monitor{};
    std::deque<std::pair<TimePoint, std::vector<std::byte>>> waiting{};  // with when it is stale
  };

  Dealer* find(const std::string& endpoint, TimePoint now);
  void make_room(TimePoint now);
  zmq::socket_t connect(const std::string& endpoint);
  void watch(Dealer& dealer);

  zmq::context_t& context_;
  std::map<std::string, Dealer> dealers_;
  std::optional<KeyPair> keys_;
  std::uint64_t monitors_ = 0;     // made so far
  std::set<std::string> refused_;  // no endpoint at all: said once, not tried again
};

}  // namespace penstock
