// What waits to be sent, bounded per client. Bytes count from the moment a message is given in
// until ZeroMQ is done with it, so a client that does not read cannot fill our memory by either
// the queue here or the pipe there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>
#include <zmq.hpp>

namespace penstock {

/// A message on its way to one client. Owns its share of the client's budget until it is freed.
struct Outgoing {
  std::string client;
  zmq::message_t payload;
  std::uint64_t number = 0;  // of a client that has a ring; 0: it has none, or had none yet
};

class Outbox {
 public:
  /// `max_client_bytes` unsent for one client; a message always fits when none is unsent.
  explicit Outbox(std::size_t max_client_bytes);
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// Any thread. False: the client's budget is spent and the message is dropped.
  bool push(const std::string& client, std::vector<std::uint8_t> bytes, std::uint64_t number = 0);
  /// Takes all that waits; the sending thread only.
  std::vector<Outgoing> take();
  /// Readable while something may wait; the sending thread polls it. wake() makes it so.
  int wake_fd() const { return wake_fd_; }
  void wake();
  /// Whether wake_fd() is readable, without a look at it.
  bool rung() const { return rung_; }

 private:
  using Unsent = std::atomic<std::size_t>;
  struct Charge;

  std::shared_ptr<Unsent> unsent_of(const std::string& client);

  const std::size_t max_client_bytes_;
  int wake_fd_ = -1;
  std::atomic<bool> rung_{false};
  std::mutex mutex_;
  std::vector<Outgoing> waiting_;
  // An entry dies with the last message that is unsent for its client.
  std::unordered_map<std::string, std::weak_ptr<Unsent>> unsent_;
  std::size_t sweep_at_ = 64;
};

}  // namespace penstock
