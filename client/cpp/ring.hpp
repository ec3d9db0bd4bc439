// The client's end of a shared-memory ring to a service on the same machine
// (transport/ring/shared_ring.hpp, docs/protocol.md). One thread at a time. Not installed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/wire.hpp"
#include "transport/ring/shared_ring.hpp"

namespace penstock::client {

class Ring {
 public:
  using Deliver = std::function<void(std::span<const std::uint8_t>)>;

  /// Fetches and maps what the service has handed out. Throws Error.
  Ring(const std::string& socket_path, std::uint64_t token);

  enum class Sent : unsigned char { kSent, kNoRoom, kTooLong };
  Sent send(const Message& message);
  /// Says that the next message comes by ZeroMQ, with the number that this returns; nullopt: no
  /// room to say it.
  std::optional<std::uint64_t> announce();

  /// Gives what has come, at most `most`, in its order; how many there were. Stops where a message
  /// is awaited that comes by ZeroMQ.
  std::size_t receive(std::size_t most, const Deliver& deliver);
  /// The message with this number has come by ZeroMQ; receive() gives it in its place.
  void came_by_socket(std::uint64_t number, std::span<const std::uint8_t> message);
  /// When the ring has ended: what came by ZeroMQ, and its place will not be said any more.
  void receive_left(const Deliver& deliver);

  /// Readable when the bell rings or the service has gone.
  int fd() const { return bell_.fd(); }
  /// False: the service has ended the ring, or died.
  bool serve_bell() const { return bell_.quiet(); }
  bool is_broken() const { return broken_; }
  /// Before everybody sleeps who would look. False: something is there.
  bool sleep();
  void awake() { answers_.awake(); }

 private:
  RingBell bell_;
  std::optional<RingSegment> segment_;
  RingWriter requests_;
  RingReader answers_;
  std::uint64_t numbers_sent_ = 0;
  std::uint64_t waits_for_ = 0;  // 0: for none
  std::map<std::uint64_t, Message> by_socket_;
  std::vector<std::byte> payload_;  // of the message in hand
  bool broken_ = false;
};

}  // namespace penstock::client
