// A transfer as a client asks for it, follows it and learns how it ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "error.hpp"
#include "layout.hpp"

namespace penstock::client {

enum class Direction : unsigned char { kWrite, kRead };
enum class Lane : unsigned char { kBulk, kUrgent };
/// Whether small pages cross packed into long writes: as the service's costs say, or always, never.
enum class Packing : unsigned char { kAuto, kAlways, kNever };

// Members that need no value have `{}` so that designated initializers may leave them out without
// a warning.
struct Target {
  std::string node{};  // "": the service's own node
  std::string region{};
  std::uint64_t epoch = 0;  // 0: whatever is there now; else STALE_REGION unless it is this one
};

struct TransferSpec {
  Direction direction = Direction::kWrite;
  std::string region{};           // local: the source of a write, the destination of a read
  std::vector<Target> targets{};  // each becomes a transfer of its own
  Layout layout{};
  std::uint32_t deadline_ms = 0;  // 0: the service's default
  Lane lane = Lane::kBulk;
  std::uint32_t weight = 1;  // 1 to 1000: share among the transfers to the same peer
  std::string key{};         // idempotency: a repeated key returns the first ids. "": none
  std::string notify{};      // up to 1 KiB, for the subscribers of the destination node
  Packing packing = Packing::kAuto;
  /// Handles of CUDA events (cudaIpcGetEventHandle; 64 bytes), "": none. Nothing is read before
  /// `start_after` is done; `record_event` is recorded behind a copy on one node.
  std::string start_after{};
  std::string record_event{};
  std::string path{};  // "" or "auto"; "staged" or "gpudirect": that way or an error
  /// Done only when the digests of both sides are equal, page by page; costs a read of each side.
  bool verify = false;
  /// The node that carries it out, "": the service's own. `region` is then one of that node's, and
  /// a target's node "" is that node.
  std::string on{};
};

/// How a transfer ended.
struct TransferResult {
  enum class State : unsigned char {
    kDone,
    kFailed,
    kCancelled,
    kExpired,
    kRefused,  // the service never accepted it: `error` says why
    kLost,     // the outcome cannot be learnt: the service restarted, or stayed away, or the client
               // was closed first
  };
  enum class Remote : unsigned char { kQuiet, kUnreachable };
  struct Card {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t writes = 0;
  };

  std::uint64_t id = 0;
  State state = State::kDone;
  Remote remote = Remote::kQuiet;
  std::string node;    // the other one
  std::string region;  // local
  std::string remote_region;
  std::string direction;         // "write" or "read"
  std::string lane;              // "bulk" or "urgent"
  std::uint64_t bytes = 0;       // that landed
  std::uint64_t writes = 0;      // one-sided operations
  std::uint64_t elapsed_us = 0;  // from acceptance to the end, by the service's clock
  std::string path;              // "direct", "staged" ...: docs/protocol.md
  std::vector<Card> cards;
  std::string error_code;  // "" when done
  std::string error_message;
  std::vector<Range> landed;  // when it did not finish: what had landed
  bool landed_truncated = false;
  std::uint64_t stream = 0;  // of a part: the stream's id; `part` is its number
  std::uint32_t part = 0;
  std::string on;           // the node that carried it out, "": the service's own
  std::uint64_t on_as = 0;  // the transfer's id there, once it is known
  std::uint32_t parts = 0;  // of a stream: appended, and of them done
  std::uint32_t parts_done = 0;

  bool done() const { return state == State::kDone; }
};

/// "done", "failed", "cancelled", "expired", "refused", "lost".
const char* name_of(TransferResult::State state);

struct TransferState;
class Core;

/// A handle; copies mean the same transfer. Dropping it leaves the transfer running.
class Transfer {
 public:
  Transfer() = default;
  explicit Transfer(std::shared_ptr<TransferState> state, std::shared_ptr<Core> core)
      : state_(std::move(state)), core_(std::move(core)) {}

  /// The service's id. Waits for the acceptance when the transfer was only submitted; throws Error
  /// when it was refused.
  std::uint64_t id() const;

  /// How it ended. Never holds an exception: every way to end is a State.
  std::shared_future<TransferResult> future() const;
  bool ended() const;
  /// Waits for the end. It comes: the service ends each transfer at its deadline, and the client
  /// calls it lost when the service stays away longer than Options::lost_after_ms.
  TransferResult wait() const;
  /// As wait(), but nullopt after `timeout`.
  std::optional<TransferResult> wait_for(std::chrono::milliseconds timeout) const;

  /// Asks the service to stop it; the end still comes through future(). Throws Error.
  void cancel() const;

  /// Calls back once, when it ends, on the client's thread; at once, on this thread, when it has
  /// ended already. The callback must not block; it may submit() but not make calls that wait.
  void on_done(std::function<void(const TransferResult&)> callback) const;

 private:
  std::shared_ptr<TransferState> state_;
  std::shared_ptr<Core> core_;
};

/// Waits for all; results in the order of the handles.
std::vector<TransferResult> wait_all(const std::vector<Transfer>& transfers);

}  // namespace penstock::client
