// The raw loop's target in a process of its own, and the pipes to it.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "transport/bench/raw_loop.hpp"
#include "transport/bench/raw_memory.hpp"

namespace penstock {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// Rounds of progress between looks at the command pipe: a look is a system call.
constexpr unsigned kRoundsPerLook = 4096;

bool write_all(int fd, const void* data, std::size_t size) {
  const auto* at = static_cast<const std::byte*>(data);
  while (size > 0) {
    const auto written = write(fd, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

bool write_counted(int fd, const void* data, std::size_t size) {
  const auto length = static_cast<std::uint32_t>(size);
  return write_all(fd, &length, sizeof length) && write_all(fd, data, size);
}

Result<void> read_all(int fd, void* data, std::size_t size, SteadyClock::time_point deadline) {
  auto* at = static_cast<std::byte*>(data);
  while (size > 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
    pollfd descriptor{fd, POLLIN, 0};
    const int ready = left.count() > 0 ? ::poll(&descriptor, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0)
      return fail(ErrorCode::kDeadlineExceeded, "the raw target's process does not answer");
    const auto got = read(fd, at, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(ErrorCode::kPeerLeft, "the raw target's process is gone");
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return {};
}

Result<std::vector<std::byte>> read_counted(int fd, SteadyClock::time_point deadline) {
  std::uint32_t length = 0;
  if (auto got = read_all(fd, &length, sizeof length, deadline); !got)
    return tl::unexpected(got.error());
  if (length > 64 * 1024) return fail(ErrorCode::kInternal, "the raw target speaks nonsense");
  std::vector<std::byte> bytes(length);
  if (auto got = read_all(fd, bytes.data(), length, deadline); !got)
    return tl::unexpected(got.error());
  return bytes;
}

/// The next command, 0 when none is there and `wait` is false, -1 at the end of the pipe.
int next_command(int fd, bool wait) {
  pollfd descriptor{fd, POLLIN, 0};
  if (!wait && ::poll(&descriptor, 1, 0) == 0) return 0;
  char command = 0;
  ssize_t got = 0;
  do {
    got = read(fd, &command, 1);
  } while (got < 0 && errno == EINTR);
  return got == 1 ? command : -1;
}

}  // namespace

int serve_raw_target(const RawOptions& options, std::uint64_t bytes, int commands, int replies) {
  const auto refuse = [&](const std::string& words) {
    write_counted(replies, nullptr, 0);
    write_counted(replies, words.data(), words.size());
    return 1;
  };
  const auto memory = RawMemory::allocate(bytes, options.huge_pages);
  if (!memory) return refuse(memory.error().message);
  auto target = RawTarget::open(options, memory->bytes());
  if (!target) return refuse(target.error().message);
  const auto& description = (*target)->description();
  if (!write_counted(replies, description.data(), description.size())) return 1;
  bool serving = false;
  for (;;) {
    if (serving)
      for (unsigned round = 0; round < kRoundsPerLook; ++round) (*target)->progress();
    const int command = next_command(commands, !serving);
    if (command < 0) return 0;
    if (command == 0) continue;
    serving = command == 'g';
    const char reply = static_cast<char>(command);
    if (!write_all(replies, &reply, 1)) return 1;
  }
}

RawTargetControl::~RawTargetControl() {
  close(commands_);
  close(replies_);
}

Result<RawDescription> RawTargetControl::description(std::chrono::milliseconds patience) {
  const auto deadline = SteadyClock::now() + patience;
  auto bytes = read_counted(replies_, deadline);
  if (!bytes || !bytes->empty()) return bytes;
  const auto words = read_counted(replies_, deadline);
  if (!words) return tl::unexpected(words.error());
  return fail(ErrorCode::kProvider, "the raw target could not open: {}",
              std::string_view(reinterpret_cast<const char*>(words->data()), words->size()));
}

Result<void> RawTargetControl::command(char what, std::chrono::milliseconds patience) {
  if (!write_all(commands_, &what, 1))
    return fail(ErrorCode::kPeerLeft, "the raw target's process is gone");
  char reply = 0;
  if (auto got = read_all(replies_, &reply, 1, SteadyClock::now() + patience); !got) return got;
  if (reply != what) return fail(ErrorCode::kInternal, "the raw target speaks nonsense");
  return {};
}

}  // namespace penstock
