// The request socket: a plain thread that owns a ZeroMQ ROUTER. Decodes msgpack, hands requests to
// a sink, sends replies and events. Knows nothing of what a request means.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway/descriptor_socket.hpp"
#include "actors/protocol/request.hpp"
#include "actors/security/allow_list.hpp"
#include "actors/security/key.hpp"
#include "transport/poller/side_work.hpp"

namespace penstock {

/// Who asked: the ROUTER identity of the connection; where keys are asked for, together with the
/// client's name in the allow-list. A client that reconnects under the same identity is the same
/// client. For the gateway alone to take apart.
using ClientId = std::string;

class Gateway {
 public:
  struct Setup {
    std::vector<std::string> bind;  // ZeroMQ endpoints; tcp://host:* picks a port
    std::size_t max_request_bytes = 64u << 20;
    /// Unsent bytes kept for one client; what would pass it is dropped and counted. One message is
    /// always let through when nothing is waiting.
    std::size_t max_unsent_bytes = 64u << 20;
    /// Clients show keys at tcp endpoints, of which `clients` tells who may come. None: nobody is
    /// asked for one.
    std::optional<KeyPair> keys{};
    AllowList clients{};
    std::size_t max_connections = 4096;      // more are cut as they come
    std::size_t max_client_requests = 4096;  // of one client, waiting and under way
    std::uint32_t audit_lines_per_s = 10;
    /// Shared-memory rings that are open at once, handed out at `descriptors`; 0: none.
    std::size_t rings = 0;
    std::size_t ring_bytes = 256u << 10;      // each way, a power of two
    std::chrono::microseconds ring_spin{50};  // so long the next request by a ring is looked for
    bool ring_yields = false;                 // and the core is offered to others at every look
    /// Done while the next request by a ring is looked for, between two looks; null: nothing.
    std::shared_ptr<SideWork> side_work{};
    std::shared_ptr<DescriptorSocket> descriptors{};
    /// Called on the gateway's thread before `sink`, for the only request of its client that is
    /// under way: true when it is dealt with. May be empty.
    std::function<bool(const ClientId&, Request&)> at_once{};
    /// Called on the gateway's thread for each well-formed request; must not block. Malformed ones
    /// are answered here. While many requests live (Request::ticket) no more are read; none may
    /// outlive the gateway.
    std::function<void(ClientId, Request)> sink;
    /// Called on the gateway's thread when something was to be sent to a client that is not
    /// connected, or that was cut since it does not read; before any request that it sends after it
    /// came back. May be empty.
    std::function<void(const ClientId&)> gone;
  };

  /// Since the start; any thread may look.
  struct Counters {
    std::uint64_t requests = 0;       // well-formed, given to the sink
    std::uint64_t malformed = 0;      // answered with an error here
    std::uint64_t sink_failures = 0;  // the sink threw; the client was told INTERNAL
    std::uint64_t sent = 0;           // replies and events put into a client's pipe
    std::uint64_t unroutable = 0;     // dropped: no such client is connected
    std::uint64_t overflowed = 0;     // dropped: the client reads too slowly, and was cut
    std::uint64_t refused = 0;        // strangers, and requests above their client's role or share
    std::uint64_t connections = 0;    // now
    std::uint64_t rings = 0;          // now
    std::uint64_t ring_requests = 0;  // malformed ones too
    std::uint64_t ring_sent = 0;      // replies and events given to a ring
  };

  /// Binds before it returns; an address in use is an error that names it.
  static Result<std::unique_ptr<Gateway>> start(Setup setup);
  ~Gateway();

  /// What was bound, ports resolved.
  const std::vector<std::string>& endpoints() const;

  /// Any thread; never blocks. `message` is a reply or an event (docs/protocol.md), sent as
  /// msgpack. A client that is gone, or whose pipe is full, loses it: events are kept by the node.
  void send(const ClientId& client, const nlohmann::json& message);
  /// The same, of one that is msgpack already.
  void send_packed(const ClientId& client, std::vector<std::uint8_t> message);

  /// Any thread. The client has died: what comes from it later comes by ZeroMQ.
  void end_ring(const ClientId& client);

  /// Any thread. Takes the place of the list of clients that was given before.
  void allow(AllowList clients);

  Counters counters() const;

 private:
  Gateway();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
