// A second process with a CUDA context of its own: this program again, asked over a socket.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>

#include "transport/gpu/event.hpp"
#include "transport/gpu/gpu_memory.hpp"

namespace penstock {

inline constexpr char kOtherProcessFlag[] = "--other-process";

enum class Ask : std::uint32_t {
  kImport,            // maps the handle; digests it; fills it with `seed`
  kImportDescriptor,  // the same for the descriptor that comes along
  kLetGo,             // of what was imported
  kAllocate,          // memory of its own, filled with `seed`; answers its handle
  kFree,              // what it allocated
  kCopyAfter,         // maps memory and event, copies by kernel once the event is done, digests
  kRecordAfter,       // maps memory and event, fills the memory by kernels and records the event
  kDescribe,          // describe_gpu_address(address), without a context
  kPoison,            // copies from an address that is none, and polls
  kPoisonThenUse,     // what else works after that
  kInventory,         // answers the bus ids it sees, or why it sees none
};

struct Question {
  Ask ask = Ask::kImport;
  std::uint64_t seed = 0;
  std::uint64_t bytes = 0;
  std::uint64_t allocation_bytes = 0;
  std::uint64_t address = 0;
  GpuIpcHandle memory;
  GpuEventHandle event;
};

struct Answer {
  bool good = false;
  ErrorCode code = ErrorCode::kInternal;
  std::uint64_t digest = 0;
  GpuIpcHandle memory;
  std::array<char, 512> message{};
};

class OtherProcess {
 public:
  /// With CUDA_VISIBLE_DEVICES as given, or as here.
  explicit OtherProcess(const char* visible_devices = nullptr);
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  /// Kills it.
  ~OtherProcess();
  void kill();
  /// `fd` is passed along unless it is -1.
  Answer ask(const Question& question, int fd = -1);
  /// In two steps, to do something meanwhile.
  void send(const Question& question, int fd = -1);
  Answer receive();

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
};

/// What the other process does: answers until the socket closes.
int run_other_process(int socket);

}  // namespace penstock
