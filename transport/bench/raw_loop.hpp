// The yardstick: a bare libfabric loop. One endpoint and one completion queue per side, a window of
// operations, nothing of Penstock's queues, lanes, counting or quiet. What the poller reaches is
// compared with what this reaches on the same provider, window and pages.
//
// The target makes progress in a process of its own, so the benchmark starts itself once more as a
// child that calls serve_raw_target() on two pipes; RawTargetControl is the parent's end of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/error.hpp"
#include "transport/fabric/nic.hpp"
#include "transport/memory/huge_pages.hpp"

namespace penstock {

struct RawOptions {
  std::string provider = "tcp";
  std::string domain;   // as in CardRequest
  std::string address;  // as in CardRequest
  std::uint32_t window_operations = 128;
  std::uint64_t window_bytes = 8u << 20;
  HugePages huge_pages = HugePages::kAuto;  // of the target's memory
  /// A run without any completion for so long is given up.
  std::chrono::milliseconds patience{10'000};
};

/// Where a target is reached, as bytes to be carried to the initiator.
using RawDescription = std::vector<std::byte>;

class RawTarget {
 public:
  /// Registers `memory`, which must outlive the target.
  static Result<std::unique_ptr<RawTarget>> open(const RawOptions& options,
                                                 std::span<std::byte> memory);
  ~RawTarget();
  const RawDescription& description() const;
  /// Lets the provider do its work once.
  void progress();

 private:
  struct State;
  explicit RawTarget(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct RawOperation {
  std::uint64_t local_offset = 0;
  std::uint64_t remote_offset = 0;
  std::uint64_t length = 0;
};

struct RawRun {
  std::uint64_t bytes = 0;
  std::uint64_t operations = 0;
  std::chrono::nanoseconds elapsed{0};
  std::chrono::nanoseconds cpu{0};  // of the calling thread
};

class RawInitiator {
 public:
  static Result<std::unique_ptr<RawInitiator>> open(const RawOptions& options,
                                                    std::span<std::byte> memory,
                                                    const RawDescription& target);
  ~RawInitiator();
  /// Does all of them, in order of posting, and returns when the last has completed. Offsets are
  /// the caller's responsibility.
  Result<RawRun> run(std::span<const RawOperation> operations, Direction direction);

 private:
  struct State;
  explicit RawInitiator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// -- the target in a process of its own ----------------------------------------------------------
//
// child -> parent: u32 length and the description (length 0: opening failed, the error's text
// follows the same way); then one byte for every command that was carried out.
// parent -> child: 'g' spin in progress(), 's' stop spinning; end of file: exit.

/// The child's whole life, with `bytes` of memory. Returns an exit code.
int serve_raw_target(const RawOptions& options, std::uint64_t bytes, int commands, int replies);

class RawTargetControl {
 public:
  /// Takes over the two descriptors.
  RawTargetControl(int commands, int replies) : commands_(commands), replies_(replies) {}
  ~RawTargetControl();
  RawTargetControl(const RawTargetControl&) = delete;
  RawTargetControl& operator=(const RawTargetControl&) = delete;

  /// What the child said first; waits at most `patience`.
  Result<RawDescription> description(std::chrono::milliseconds patience);
  Result<void> start(std::chrono::milliseconds patience) { return command('g', patience); }
  Result<void> stop(std::chrono::milliseconds patience) { return command('s', patience); }

 private:
  Result<void> command(char what, std::chrono::milliseconds patience);

  int commands_;
  int replies_;
};

}  // namespace penstock
