// The C++ client of Penstock. This header and those it includes need the standard library only.
//
//   penstock::client::Client client({.endpoint = "tcp://127.0.0.1:7411"});
//   auto region = client.allocate("cache", 1 << 30);
//   std::vector<std::uint32_t> from{7, 3, 9}, to{0, 1, 2};
//   auto transfer = client.transfer({.region = "cache",
//                                    .targets = {{"node-b", "cache"}},
//                                    .layout = Pages{.page_bytes = 65536,
//                                                    .source_pages = from,
//                                                    .destination_pages = to}});
//   TransferResult result = transfer.wait();
//
// All calls may be made from any thread. Calls throw Error; none waits longer than its timeout. One
// background thread owns the connection. It reconnects by itself under the same identity,
// subscribes again where it left off, and asks for the transfers it still waits for, so that no end
// of a transfer is missed. After a restart of the service it first makes the regions again that its
// Region objects stand for (region.hpp). Callbacks run on that thread: they must not block, and a
// call that would wait throws INVALID_ARGUMENT there instead of waiting for itself. A callback must
// not throw. Let the regions of a client go before it: later there is nobody to release them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "error.hpp"
#include "event.hpp"
#include "layout.hpp"
#include "region.hpp"
#include "stream.hpp"
#include "trace.hpp"
#include "transfer.hpp"

namespace penstock::client {

struct ServiceInfo {
  std::string node;
  std::uint64_t incarnation = 0;
  std::string version;
  /// Where descriptors of GPU memory are exchanged; "": it uses no GPU.
  std::string descriptor_socket{};
};

/// The service was started anew and the client has settled with it. Transfers of its earlier life
/// have ended as kLost.
struct Restart {
  ServiceInfo service;
  std::vector<std::string> regions;  // there again
  std::vector<Error> lost;           // regions that could not be made again, and why
};

struct Options {
  std::string endpoint = "tcp://127.0.0.1:7411";  // tcp://HOST:PORT or ipc://PATH
  std::string client = "penstock-cpp";            // free words for the service's log
  /// Names the connection at the service; two clients must not share one. "": a random one.
  std::string identity{};
  std::uint32_t timeout_ms = 5000;  // for an answer to an ordinary call, and for the first contact
  /// For calls that touch much memory: allocate, register, release, fill, digest.
  std::uint32_t memory_timeout_ms = 120000;
  /// A transfer is called lost when the service has not answered for so long.
  std::uint32_t lost_after_ms = 60000;
  /// Called on the client's thread.
  std::function<void(const Restart&)> restarted{};
  /// When the service has not heard of this client for so long, the client has died: its transfers
  /// are cancelled, its regions released, but for detached ones. The client's thread lets itself be
  /// heard three times as often. 0: whatever it has stays.
  std::uint32_t lease_ms = 60000;
  /// Where the service asks for keys (tcp endpoints only; penstock keygen makes them): the file of
  /// this client's secret key, and the service's public key or the file of it. "": as the
  /// environment says, PENSTOCK_KEY_FILE and PENSTOCK_SERVER_KEY. A client that is not let in ends
  /// with Error DENIED.
  std::string key_file{};
  std::string server_key{};
  /// A service on the same machine is asked by a ring in shared memory, where it offers one; else,
  /// and for long messages, by ZeroMQ.
  bool ring = true;
  /// A call that waits for an answer by the ring looks for it so long itself before it sleeps: an
  /// answer comes a few microseconds after its question then. It takes a core meanwhile. 0: no.
  std::uint32_t spin_us = 0;
};

struct NodeInfo {
  std::string name;
  std::uint64_t incarnation = 0;
  std::string state;  // "self", "connected", "connecting", ... as the service says it
  std::string address;
  std::string json;  // everything that the service said of it
};

/// One line of Client::transfers(). `state` may also be one of a running transfer ("queued",
/// "running", ...); `result` is there once it ended.
struct TransferInfo {
  std::uint64_t id = 0;
  std::string state;
  std::optional<TransferResult> result;
  std::string json;  // everything that the service said of it
};

enum class MapMemory : unsigned char { kNo, kYes };

class Client {
 public:
  /// Connects and says hello. Error DEADLINE_EXCEEDED when nobody answers within timeout_ms.
  explicit Client(Options options = {});
  /// Waits for nothing at the service. Transfers go on; handles of unended ones become kLost.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  Client(Client&&) noexcept = default;
  Client& operator=(Client&&) noexcept = delete;

  const Options& options() const;
  /// As told by the latest hello.
  ServiceInfo service() const;
  /// Requests go by a ring now.
  bool has_ring() const;

  // ---- memory ----

  /// The service allocates shared memory. Mapping needs the service on the same machine and the
  /// same user. `device` "": the service chooses. `allow`: the nodes that may reach it, by name or
  /// by label ("rack=r7"); empty: every member.
  Region allocate(const std::string& name, std::uint64_t bytes, const std::string& device = "",
                  MapMemory map = MapMemory::kYes, const std::vector<std::string>& allow = {});
  /// Registers `bytes` at `offset` of the client's own segment `shared_name` (of shm_open). The
  /// segment stays the client's.
  Region register_region(const std::string& name, const std::string& shared_name,
                         std::uint64_t offset, std::uint64_t bytes, const std::string& device = "",
                         MapMemory map = MapMemory::kNo,
                         const std::vector<std::string>& allow = {});
  /// The service allocates memory of a GPU: the one numbered `gpu` as the service numbers them, -1:
  /// the device's. Its info has the handle that maps it (client/gpu/mapped_region.hpp does).
  Region allocate_cuda(const std::string& name, std::uint64_t bytes, int gpu = -1,
                       const std::string& device = "");
  /// Registers `bytes` at `offset` of an allocation of the client's own, which `ipc_handle` names
  /// (cudaIpcGetMemHandle; 64 bytes). The service maps it: it stays until it is released, whatever
  /// becomes of the allocation.
  Region register_cuda(const std::string& name, std::span<const std::byte> ipc_handle,
                       std::uint64_t offset, std::uint64_t bytes, int gpu = -1,
                       const std::string& device = "");
  /// The same for virtual memory (cuMemCreate): `fd` is what cuMemExportToShareableHandle gave, for
  /// an allocation of `allocation_bytes`. The caller keeps it.
  Region register_cuda_descriptor(const std::string& name, int fd, std::uint64_t allocation_bytes,
                                  std::uint64_t offset, std::uint64_t bytes, int gpu = -1,
                                  const std::string& device = "");
  /// The service allocates virtual memory of a GPU. `fd` is what cuMemImportFromShareableHandle
  /// takes; the caller closes it. The allocation has `allocation_bytes`, the region starts at
  /// `offset`.
  struct Descriptor {
    int fd = -1;
    std::uint64_t allocation_bytes = 0;
    std::uint64_t offset = 0;
  };
  Region allocate_cuda_descriptor(const std::string& name, std::uint64_t bytes,
                                  Descriptor& descriptor, int gpu = -1,
                                  const std::string& device = "");
  /// A region that is there already; detached: its destruction releases nothing.
  Region open(const std::string& name, MapMemory map = MapMemory::kYes);
  /// With `force`, transfers that use it are cancelled and waited for; else Error BUSY.
  void release(const std::string& name, bool force = false);
  std::vector<RegionInfo> regions();

  /// Fills [offset, offset + bytes) with the pattern of `seed`; bytes 0: to the end. The byte at a
  /// position depends on seed and position only.
  void fill(const std::string& region, std::uint64_t seed, std::uint64_t offset = 0,
            std::uint64_t bytes = 0);
  /// XXH3-64 of every page_bytes in [offset, offset + bytes); bytes 0: to the end.
  std::vector<std::uint64_t> digest(const std::string& region, std::uint64_t page_bytes,
                                    std::uint64_t offset = 0, std::uint64_t bytes = 0);
  /// XXH3-64 of the pages with these indexes, in their order: page i starts at
  /// offset + i * page_bytes.
  std::vector<std::uint64_t> digest(const std::string& region, std::uint64_t page_bytes,
                                    std::span<const std::uint32_t> pages, std::uint64_t offset = 0);

  // ---- transfers ----

  /// Waits for the acceptance; throws Error when it is refused. `spec` must have one target.
  Transfer transfer(const TransferSpec& spec);
  /// One request for all: a handle per target, in order of specs and targets.
  std::vector<Transfer> transfer(const std::vector<TransferSpec>& specs);
  /// As transfer(), but waits for nothing: a refusal is the handle's result (kRefused). Throws only
  /// what can be seen here (INVALID_ARGUMENT). May be called from callbacks.
  Transfer submit(const TransferSpec& spec);
  std::vector<Transfer> submit(const std::vector<TransferSpec>& specs);

  /// Opens a transfer that stays open (stream.hpp). Waits for the acceptance; throws Error.
  Stream stream(const StreamSpec& spec);

  /// Asks the service to stop these; unknown ids and ended transfers are not an error.
  void cancel(const std::vector<std::uint64_t>& ids);
  /// What the service knows of these ids; empty: the newest `limit` of all.
  std::vector<TransferInfo> transfers(const std::vector<std::uint64_t>& ids = {},
                                      std::uint32_t limit = 1000);

  /// Where the time of a transfer went, or goes. Error NOT_FOUND: unknown, or too many ended since.
  TransferTrace trace(std::uint64_t id);

  // ---- events ----

  /// Topics: "transfers" (the ends of all transfers of the node), "notify", "members". `since`: the
  /// events after that sequence that the service still keeps come first.
  Subscription subscribe(const std::vector<std::string>& topics, EventCallback callback,
                         std::optional<std::uint64_t> since = std::nullopt);

  // ---- the rest ----

  std::vector<NodeInfo> nodes();
  /// The service's status, as JSON.
  std::string status();
  /// Any operation of the protocol: `fields` is a JSON object, "{}" for none; the reply's body
  /// comes back as JSON. For tools, and for operations newer than this client. timeout_ms 0: the
  /// default.
  std::string call(const std::string& operation, const std::string& fields,
                   std::uint32_t timeout_ms = 0);

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace penstock::client
