// The shared-memory rings that clients of this node have beside their ZeroMQ connection
// (transport/ring/shared_ring.hpp, docs/protocol.md). One client has at most one. The gateway's
// thread reads requests and looks after them all; answers are written by whoever has them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway/descriptor_socket.hpp"
#include "actors/security/allow_list.hpp"
#include "actors/security/audit.hpp"
#include "transport/ring/shared_ring.hpp"

namespace penstock {

class Rings {
 public:
  struct Options {
    std::size_t most = 0;  // open at once; 0: none are handed out
    std::size_t bytes = 256u << 10;
    std::size_t max_unsent_bytes = 64u << 20;  // of answers that find no room, of one client
  };
  struct Port {
    /// To the client by ZeroMQ, with this number beside it; 0: none. Any thread.
    std::function<void(const std::string& client, std::vector<std::uint8_t>, std::uint64_t number)>
        by_socket;
    /// Its client does not read. Any thread.
    std::function<void(const std::string& client)> slow;
    /// The gateway's thread shall look: flush() has something to do. Any thread.
    std::function<void()> wake;
    /// The ring broke, by its client's doing. The gateway's thread.
    std::function<void(const std::string& client)> broken;
  };
  struct Counters {
    std::atomic<std::uint64_t> open{0}, requests{0}, answers{0}, broken{0};
  };
  using Take = std::function<void(const std::string& client, const Principal& asker,
                                  std::shared_ptr<std::vector<std::byte>> message)>;

  Rings(Options options, Port port, Audit& audit);
  ~Rings();
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;

  // -- the gateway's thread ----------------------------------------------------------------------

  /// A ring for this client, in place of one that it had; the token under which it is fetched at
  /// `descriptors`.
  Result<std::uint64_t> hand_out(const std::string& client, Principal asker,
                                 DescriptorSocket& descriptors);
  /// Readable while a bell rings or a client has gone.
  int handle() const { return watched_.get(); }
  /// Ends the rings whose clients are gone.
  void serve();
  /// Gives at most `most` requests to `take`, of the rings in turn; how many there were.
  std::size_t receive(std::size_t most, const Take& take);
  /// What the client wrote before the message with this number, which it sends by ZeroMQ. False: it
  /// has no ring, or does not say there where that message belongs.
  bool receive_until(const std::string& client, std::uint64_t number, const Take& take);
  /// It sent a message by ZeroMQ that is no part of what goes by a ring: it has dropped it, or
  /// another connection has taken over its identity.
  void spoke_apart(const std::string& client);
  /// serve() has something to do, without a bell.
  bool changed() const { return ended_ || answers_broken_; }
  /// Answers that found no room may find it now.
  void flush();
  /// Before the thread sleeps: false when there is something to be read.
  bool sleep();
  void awake();
  /// Rings that clients have taken up: whether it is worth to look at them again and again.
  bool any() const { return attached_ > 0; }
  /// Of clients that show a key: they may come again, and are looked at anew.
  void end_keyed();

  // -- any thread --------------------------------------------------------------------------------

  /// False: the client has no ring; `bytes` are untouched.
  bool send(const std::string& client, std::vector<std::uint8_t>& bytes);
  void end(const std::string& client);
  bool waits() const { return waiting_ > 0; }  // somebody's answers, for room
  const Counters& counters() const { return counters_; }

 private:
  struct Ring;
  struct Queued {
    RingRecord kind = RingRecord::kMessage;
    std::vector<std::uint8_t> bytes{};
  };

  std::shared_ptr<Ring> of(const std::string& client) const;
  std::size_t receive(Ring& ring, std::size_t most, const Take& take);
  bool take_marker(Ring& ring, std::uint64_t number);
  void attach(Ring& ring);
  void by_socket(Ring& ring, std::vector<std::uint8_t> bytes);
  void put(Ring& ring, Queued message);
  void write_waiting(Ring& ring);
  void broken(Ring& ring, const char* why);
  void forget_ended();

  const Options options_;
  const Port port_;
  Audit& audit_;
  RingDescriptor watched_;  // of epoll
  Counters counters_;
  std::atomic<std::size_t> attached_{0};
  std::atomic<std::size_t> waiting_{0};
  std::atomic<bool> ended_{false};           // some
  std::atomic<bool> answers_broken_{false};  // of some
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Ring>> by_client_;
  std::vector<std::shared_ptr<Ring>> all_;  // the gateway's thread
  std::size_t next_ = 0;                    // the same: whose turn it is, so that none is left out
};

}  // namespace penstock
