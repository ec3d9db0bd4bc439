// One network card, as the poller drives it. FabricNic (libfabric) and the simulated card of
// tests/sim implement it. Only the poller's thread calls it, except register_memory and info.
//
// A card has three endpoints, so that closing one never harms the others:
//   control   SEND/RECV of metadata, never closed while the card is open
//   outbound  posts our one-sided reads and writes; reopened for local quiet
//   inbound   is what peers read and write; reopened for remote quiet on providers whose key check
//             alone does not stop late bytes (docs/architecture.md, "quiet")
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/error.hpp"

namespace penstock {

/// A provider's opaque endpoint address (fi_getname), as peers exchange it.
using FabricAddress = std::vector<std::byte>;

/// How the owner of pages stops a peer's late operations (quiet.md's table per provider).
enum class FenceKind : unsigned char {
  kReopenInbound,  // tcp, shm: the key is checked once per message, so the endpoint must go
  kRekey,          // efa, verbs: close the registration and register anew
};

struct NicInfo {
  std::string name;      // domain name as libfabric says it: "rdmap79s0", "eth0", "lo"
  std::string provider;  // the name of the user's configuration: "tcp", "shm", "efa", "verbs"
  std::uint64_t max_chunk_bytes = 0;  // largest single write or read
  std::size_t local_pieces = 1;       // of our memory in one operation, at most kMostPieces
  bool immediate_data = false;        // at least 4 bytes of remote CQ data
  bool memory_address_is_virtual =
      false;  // FI_MR_VIRT_ADDR: remote offsets start at the base address
  FenceKind fence = FenceKind::kReopenInbound;
  int wait_fd = -1;  // readable when poll() may have work; -1: no usable wait object, use a tick
  bool gpu_memory = false;  // FI_HMEM was asked for and granted: register_gpu_memory() works
  double link_gbps = 0;     // as the provider says; 0: unknown
  int numa_node = -1;
  std::string bus;  // PCI bus id, "" when there is none
};

/// A peer card's handle: an entry in this card's address vector.
using PeerHandle = std::uint64_t;

/// Memory registered with one card; closing it (destructor) voids the key.
class MemoryRegistration {
 public:
  virtual ~MemoryRegistration() = default;
  virtual std::uint64_t key() const = 0;
  /// What a peer adds to an offset in the region to make the remote address.
  virtual std::uint64_t remote_base() const = 0;
  /// fi_mr_desc, or null where the provider needs none.
  virtual void* descriptor() const = 0;
};

enum class Direction : unsigned char { kWrite, kRead };

/// What providers take: 4 on efa, tcp and shm.
inline constexpr std::size_t kMostPieces = 4;

struct LocalPiece {
  void* address = nullptr;
  std::uint64_t length = 0;
};

/// One one-sided operation. `context` comes back in its Completion and must stay valid until then
/// or until reopen_outbound() returned.
struct OneSided {
  Direction direction = Direction::kWrite;
  PeerHandle peer = 0;
  /// Our memory, in order; all of one registration. Contiguous at the remote side.
  std::array<LocalPiece, kMostPieces> local;
  std::size_t pieces = 1;
  void* local_descriptor = nullptr;
  std::uint64_t length = 0;  // of all pieces together
  std::uint64_t remote_address = 0;
  std::uint64_t remote_key = 0;
  std::optional<std::uint32_t>
      immediate;  // writes only: told to the target when the data is visible
};

/// Provider scratch (struct fi_context2) at the front of every operation that is posted.
struct alignas(16) OperationContext {
  void* provider_scratch[8] = {};
};

enum class PostStatus : unsigned char {
  kPosted,
  kAgain,   // this peer cannot take more now: try other peers, poll, come back
  kFailed,  // never posted; the error is final for this post
};

struct Post {
  PostStatus status = PostStatus::kPosted;
  Error error;  // when kFailed
};

struct Completion {
  enum class Kind : unsigned char {
    kOperation,  // one of our one-sided operations or sends ended; context set
    kMessage,    // metadata arrived: `payload` is valid until the next poll()
    kImmediate,  // a peer's write with immediate data is complete and visible here
  };
  Kind kind = Kind::kOperation;
  OperationContext* context = nullptr;
  bool ok = true;
  int error_number = 0;  // positive fi_errno when !ok
  std::uint32_t immediate = 0;
  std::span<const std::byte> payload;
};

class Nic {
 public:
  virtual ~Nic() = default;

  virtual const NicInfo& info() const = 0;

  // -- addresses ---------------------------------------------------------------------------------
  virtual FabricAddress control_address() const = 0;
  /// Changes with every reopen_inbound(); so does the generation, which starts at 1.
  virtual FabricAddress inbound_address() const = 0;
  virtual std::uint32_t inbound_generation() const = 0;
  /// Makes an address postable. Never blocks on the network: connections come up while polling.
  virtual Result<PeerHandle> add_peer(const FabricAddress& address) = 0;
  /// Only when nothing is posted to it.
  virtual void remove_peer(PeerHandle peer) = 0;

  // -- posting -----------------------------------------------------------------------------------
  virtual Post post(const OneSided& operation, OperationContext* context) = 0;
  /// Sends metadata, at most kMaxMessageBytes; `payload` is copied before return.
  virtual Post send(PeerHandle peer, std::span<const std::byte> payload,
                    OperationContext* context) = 0;

  // -- completions -------------------------------------------------------------------------------
  /// Drives the provider's progress and fills `completions`; returns how many. Receive buffers are
  /// re-posted by the card itself.
  virtual std::size_t poll(std::span<Completion> completions) = 0;
  /// False: do not sleep on wait_fd now, poll again (fi_trywait).
  virtual bool may_wait() = 0;

  /// Lets go of what strangers left at the card and nobody else will take away: connections that
  /// have asked for nothing `silence` after they were first seen. Called now and then, whatever
  /// happens; takes about a millisecond at most. True: there is more to look at than that.
  virtual bool tidy(std::chrono::milliseconds /*silence*/) { return false; }

  // -- quiet -------------------------------------------------------------------------------------
  /// Closes the outbound endpoint and opens it anew. When it returns nothing that was posted on it
  /// can touch local memory and none of its contexts will be reported any more.
  virtual Result<void> reopen_outbound() = 0;
  /// Closes the inbound endpoint and opens it anew under a new address and generation. When it
  /// returns nothing that peers had under way can touch local memory.
  virtual Result<void> reopen_inbound() = 0;

  // -- memory (any thread) -----------------------------------------------------------------------
  /// Registers for local use and remote read and write. May block for 100s of ms.
  virtual Result<std::unique_ptr<MemoryRegistration>> register_memory(
      std::span<std::byte> memory) = 0;
  /// The same for memory of a GPU, by CUDA's number of it; kUnsupported unless info().gpu_memory.
  virtual Result<std::unique_ptr<MemoryRegistration>> register_gpu_memory(
      std::span<std::byte> memory, int gpu) {
    return fail(ErrorCode::kUnsupported,
                "card {} cannot register {} bytes of GPU {}: its provider ({}) has no FI_HMEM here",
                info().name, memory.size(), gpu, info().provider);
  }
};

inline constexpr std::size_t kMaxMessageBytes = std::size_t{16} * 1024;

}  // namespace penstock
