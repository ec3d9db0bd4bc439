// The DEALER socket to one service: messages out, messages in, and word of each new connection. For
// one thread, except wake(). Not installed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "client/cpp/keys.hpp"
#include "client/cpp/wire.hpp"

namespace penstock::client {

class Connection {
 public:
  struct Listener {
    /// A connection stands (the first, or again after a loss).
    std::function<void()> connected;
    std::function<void()> disconnected;
    std::function<void(std::span<const std::uint8_t>)> message;
    /// The service does not let us in; it is tried again.
    std::function<void(const std::string& why)> refused{};
  };

  /// Throws Error INVALID_ARGUMENT for an endpoint that ZeroMQ cannot read.
  Connection(const std::string& endpoint, const std::string& identity,
             const std::optional<Keys>& keys);
  ~Connection();

  /// Never blocks. False when no connection stands: nothing is kept for the next one.
  bool send(const Message& message);
  /// Waits for wake(), a message or a change of the connection, at most `timeout`; tells what came.
  void poll(std::chrono::milliseconds timeout, const Listener& listener);
  /// Ends a running or the next poll(). Any thread.
  void wake();

 private:
  struct Sockets;
  std::unique_ptr<Sockets> sockets_;
};

}  // namespace penstock::client
