// Who is let in at the request socket, and as whom: ZeroMQ's authentication (ZAP,
// rfc.zeromq.org/27) answered in the gateway's own loop. Keys are asked for at tcp endpoints; ipc
// endpoints are guarded by the mode of their file.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "actors/security/allow_list.hpp"
#include "actors/security/audit.hpp"
#include "actors/security/key.hpp"

namespace penstock {

class Doorman {
 public:
  /// Without `keys` everybody is let in as admin. `audit` outlives this.
  Doorman(zmq::context_t& context, std::optional<KeyPair> keys, AllowList clients, Audit& audit);

  bool asks_for_keys() const { return keys_.has_value(); }
  /// Any thread. Who is not on it any more is refused from its next request on.
  void allow(AllowList clients);
  /// Whether a client of this name is on the list.
  bool lists(std::string_view name) const { return clients_.load()->names(name); }

  /// Sets what a router needs for the next endpoint that it binds.
  void prepare(zmq::socket_t& router, const std::string& endpoint) const;
  /// What to poll; null without keys.
  void* handle() { return zap_.handle(); }
  /// Answers what connections ask; the gateway's thread.
  void serve();

  /// Whose message this is. None: its key is not on the list any more.
  std::optional<Principal> asker(zmq::message_t& message) const;

 private:
  using Frames = std::vector<std::string>;
  bool receive(Frames& frames);
  bool is_known(const Frames& request) const;

  const std::optional<KeyPair> keys_;
  Audit& audit_;
  std::atomic<std::shared_ptr<const AllowList>> clients_;
  zmq::socket_t zap_;
};

/// A property that its connection gave a message ("User-Id", "Peer-Address"); "" when it has none.
std::string property_of(zmq::message_t& message, const char* name);

}  // namespace penstock
