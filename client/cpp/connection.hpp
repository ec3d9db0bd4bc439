// The DEALER socket to one service: messages out, messages in, and word of each new connection. For
// one thread at a time, except wake(), and wait() is always the same one's. Not installed.
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
    /// `number`: its place among those of the client's ring; 0: it has none.
    std::function<void(std::span<const std::uint8_t>, std::uint64_t number)> message;
    /// The service does not let us in; it is tried again.
    std::function<void(const std::string& why)> refused{};
  };

  /// Throws Error INVALID_ARGUMENT for an endpoint that ZeroMQ cannot read.
  Connection(const std::string& endpoint, const std::string& identity,
             const std::optional<Keys>& keys);
  ~Connection();

  /// Never blocks. False when no connection stands: nothing is kept for the next one.
  bool send(const Message& message, std::uint64_t number = 0);
  /// Waits for wake(), a message, a change of the connection or `also` (a descriptor; -1: none), at
  /// most `timeout`. Whether `also` is readable.
  bool wait(std::chrono::milliseconds timeout, int also);
  /// Tells what came.
  void tell(const Listener& listener);
  /// Waits for wake() or a message, and not long. False: neither came.
  bool doze(std::chrono::microseconds time);
  /// Ends a running or the next wait(). Any thread.
  void wake();

 private:
  struct Sockets;
  std::unique_ptr<Sockets> sockets_;
};

}  // namespace penstock::client
