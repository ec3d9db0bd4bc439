// The requests a client can make, decoded and checked for shape. docs/protocol.md is the manual of
// the wire format; decode_request() its only reader.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "actors/protocol/path.hpp"
#include "actors/security/role.hpp"
#include "transport/error.hpp"
#include "transport/fabric/nic.hpp"
#include "transport/memory/region_memory.hpp"
#include "transport/packing/write_costs.hpp"
#include "transport/plan/layout.hpp"
#include "transport/poller/command.hpp"

namespace penstock {

inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::size_t kMaxNotifyBytes = 1024;
inline constexpr std::size_t kMaxNameBytes = 128;

struct HelloRequest {
  std::string client;  // free words for logs: "penstock-cli 0.1.0"
  /// A client that is not heard for so long has died: what it owns is released. 0: never.
  std::uint32_t lease_ms = 0;
  std::uint32_t ring = 0;  // the version of the ring that it wants; 0: none
  /// Set by the gateway: where its ring is fetched; 0: it gets none.
  std::uint64_t ring_token = 0;
};
struct AllocateRequest {
  std::string name;
  std::uint64_t bytes = 0;
  std::string device;  // "" lets the service choose
  MemoryKind memory = MemoryKind::kHost;
  std::optional<std::uint32_t> gpu{};  // as the service numbers them; none: the device's
  bool as_descriptor = false;          // virtual memory, mapped by a file descriptor
  std::vector<std::string> allow{};    // nodes that may reach it, see kMaxAllowed
};
/// Client-owned memory: shared memory of the host (a POSIX shm name), or an allocation on a GPU
/// that the client exports (a CUDA IPC handle, or a file descriptor handed in at the descriptor
/// socket), of which `offset` is where the region starts.
struct RegisterRequest {
  std::string name;
  std::string shared_name;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::string device;
  MemoryKind memory = MemoryKind::kHost;
  std::optional<std::uint32_t> gpu{};
  std::string ipc_handle{};            // kIpcHandleBytes
  std::uint64_t descriptor = 0;        // the token of one; 0: none
  std::uint64_t allocation_bytes = 0;  // that it covers
  std::vector<std::string> allow{};
};
/// What `allow` names: nodes, or labels of nodes as NAME=VALUE; one that fits is enough. Empty:
/// every member.
inline constexpr std::size_t kMaxAllowed = 64;
inline constexpr std::size_t kIpcHandleBytes = 64;
struct ReleaseRequest {
  std::string name;
  bool force = false;  // cancel what uses it and wait; otherwise BUSY
};
/// A region of the client's that is to stay when its lease ends.
struct KeepRequest {
  std::string name;
};
struct RegionsRequest {};
struct NodesRequest {};
struct StatusRequest {};

/// One source to one destination, or to several (scatter): each target becomes a transfer.
struct TransferTarget {
  std::string node;  // "" or the own name: this node
  std::string region;
  std::uint64_t epoch = 0;  // 0: whatever is there now; else refused with STALE_REGION if another
};
struct TransferSpec {
  Direction direction = Direction::kWrite;
  std::string region;  // the local one
  std::vector<TransferTarget> targets;
  Layout layout;
  std::uint32_t deadline_ms = 0;  // 0: the service's default
  Lane lane = Lane::kBulk;
  std::uint32_t weight = 1;  // 1 to 1000: share among transfers to the same peer
  std::string key;           // idempotency, "" none: a repeated key returns the first id
  std::string notify;        // up to kMaxNotifyBytes
  PackingMode packing = PackingMode::kAuto;
  PathChoice path = PathChoice::kAuto;
  // CUDA events of the client's (kIpcHandleBytes), "" none.
  std::string start_after{};   // nothing is read before it is done
  std::string record_event{};  // recorded behind the copy
  bool verify = false;         // done only when both sides have the same digests
  /// The node that is to carry it out, "" this one. Its local region is one of that node's, and it
  /// has one target.
  std::string on{};
  /// With `on`: a request for just this transfer, without `on`, key and deadline.
  std::shared_ptr<const std::vector<std::byte>> to_pass_on{};
};
struct TransferRequest {
  std::vector<TransferSpec> transfers;
};
/// A transfer that stays open: parts are appended to it until it is closed. What is common to all
/// parts; each is a transfer from or to the one target.
struct StreamRequest {
  /// Without layout and events. `notify`: of the parts that have none of their own.
  TransferSpec terms;
};
struct AppendRequest {
  std::uint64_t stream = 0;
  std::uint32_t part = 0;  // counted from 0; one that is there already is not appended again
  Layout layout;
  std::string notify{};  // up to kMaxNotifyBytes; "" the stream's
  std::string start_after{};
  std::string record_event{};
};
struct CloseRequest {
  std::uint64_t stream = 0;
  std::uint32_t parts = 0;  // that were appended, so that none is missing
};
struct CancelRequest {
  std::vector<std::uint64_t> ids;
};
/// Empty ids: all that are known, newest first, at most `limit`. Or, for those who watch, those
/// under way first: as many as fit on a page.
struct TransfersRequest {
  std::vector<std::uint64_t> ids;
  std::uint32_t limit = 1000;
  bool under_way_first = false;
};
struct FillRequest {
  std::string region;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // 0: to the end
};
/// XXH3-64 of each page: of `pages` (indexes of page_bytes strides) when given, else of every page
/// in [offset, offset + bytes).
struct DigestRequest {
  std::string region;
  std::uint64_t page_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // 0: to the end
  BlobList<std::uint32_t> pages;
};
/// Topics: "transfers" (terminal events of all transfers), "notify", "members". A client always
/// gets the terminal events of the transfers it asked for. Events after `since` that are still kept
/// are sent first.
struct SubscribeRequest {
  std::vector<std::string> topics;
  std::optional<std::uint64_t> since;
};

/// Where the time of a transfer went.
struct TraceRequest {
  std::uint64_t transfer = 0;
};

/// The node takes no new work, finishes what is in flight, leaves and ends. The reply says that it
/// has begun.
struct DrainRequest {
  std::string node;               // "" or the own name: this node
  std::uint32_t deadline_ms = 0;  // 0: the node's own timeouts.drain_ms
};
/// A member that will not come back is struck off by all.
struct RemoveRequest {
  std::string node;
  bool force = false;  // even when it seems to be alive
};

using RequestBody =
    std::variant<HelloRequest, AllocateRequest, RegisterRequest, ReleaseRequest, RegionsRequest,
                 NodesRequest, StatusRequest, TransferRequest, CancelRequest, TransfersRequest,
                 FillRequest, DigestRequest, SubscribeRequest, DrainRequest, RemoveRequest,
                 TraceRequest, KeepRequest, StreamRequest, AppendRequest, CloseRequest>;

struct Request {
  std::uint64_t id = 0;  // the client's, echoed in the reply
  RequestBody body;
  std::chrono::steady_clock::time_point received{};  // when the gateway read it
  /// Who asks: the client's name in the allow-list, "" where the socket asks for no key. Set by the
  /// gateway.
  std::string who{};
  Role role = Role::kAdmin;
  /// Whoever bounds how many requests are under way holds something here; it goes with the request.
  std::shared_ptr<void> ticket{};
};

/// The least role that may ask this.
Role role_for(const RequestBody& body);
/// The operation's name on the wire.
std::string_view name_of(const RequestBody& body);

/// A refused request still carries the id when it could be read, so that the reply finds its way.
struct BadRequest {
  std::uint64_t id = 0;
  Error error;
};

/// `message` stays referenced by the lists of the result (BlobList keeps `owner` alive). Never
/// throws, never reads past the message, allocates at most in proportion to its size.
tl::expected<Request, BadRequest> decode_request(std::span<const std::byte> message,
                                                 std::shared_ptr<const void> owner);

}  // namespace penstock
