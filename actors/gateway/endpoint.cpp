#include "actors/gateway/endpoint.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>

namespace penstock {
namespace {

constexpr std::string_view kIpc = "ipc://";
constexpr std::size_t kMaxIpcPath = sizeof(sockaddr_un::sun_path) - 1;

/// Whether somebody accepts connections at `path`.
bool is_served(const std::string& path) {
  int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return true;  // cannot tell: leave it alone
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  int rc = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  int error = errno;
  ::close(fd);
  return rc == 0 || error != ECONNREFUSED;
}

Result<void> prepare_path(std::string_view setting, const std::string& endpoint,
                          const std::string& path) {
  if (path.size() > kMaxIpcPath)
    return fail(ErrorCode::kInvalidArgument,
                "{}: cannot bind {}: the path has {} bytes, a socket's path has at most {}",
                setting, endpoint, path.size(), kMaxIpcPath);
  auto folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
    return fail(ErrorCode::kNotFound, "{}: cannot bind {}: there is no folder {}; create it first",
                setting, endpoint, folder.string());
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  if (!S_ISSOCK(status.st_mode))
    return fail(ErrorCode::kAlreadyExists, "{}: cannot bind {}: {} exists and is not a socket",
                setting, endpoint, path);
  if (is_served(path)) return tl::unexpected(bind_error(setting, endpoint, EADDRINUSE));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return fail(ErrorCode::kDenied, "{}: cannot bind {}: the stale socket {} cannot be removed: {}",
                setting, endpoint, path, std::strerror(errno));
  return {};
}

}  // namespace

bool is_ipv6_literal(std::string_view endpoint) { return endpoint.starts_with("tcp://["); }

Result<void> prepare_endpoint(std::string_view setting, const std::string& endpoint) {
  if (!endpoint.starts_with(kIpc)) return {};
  std::string path = endpoint.substr(kIpc.size());
  // "*" is a name that ZeroMQ picks, "@..." lives outside the file system.
  if (path.empty() || path == "*" || path.front() == '@') return {};
  return prepare_path(setting, endpoint, path);
}

namespace {

std::mutex& mask_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

OwnersOnly::OwnersOnly() {
  mask_mutex().lock();
  before_ = ::umask(077);  // not 0177: a folder that ZeroMQ makes for "ipc://*" must be enterable
}

OwnersOnly::~OwnersOnly() {
  ::umask(before_);
  mask_mutex().unlock();
}

Error bind_error(std::string_view setting, const std::string& endpoint, int error_number) {
  auto error = [&](ErrorCode code, std::string_view why) {
    return Error{code, fmt::format("{}: cannot bind {}: {}", setting, endpoint, why)};
  };
  switch (error_number) {
    case EADDRINUSE:
      return error(ErrorCode::kAlreadyExists,
                   "the address is in use; stop what listens there or choose another");
    case EACCES:
    case EPERM:
      return error(
          ErrorCode::kDenied,
          "not permitted for this user; choose a port from 1024 on, or a folder it may write to");
    case EADDRNOTAVAIL:
    case ENODEV:
      return error(ErrorCode::kInvalidArgument,
                   "this machine has no such address; 'ip addr' shows those it has");
    case EINVAL:
    case EPROTONOSUPPORT:
    case ENOCOMPATPROTO:
      return error(ErrorCode::kInvalidArgument,
                   "not an endpoint; expected tcp://ADDRESS:PORT, tcp://ADDRESS:* or ipc://PATH");
    default:
      return error(ErrorCode::kInternal, zmq_strerror(error_number));
  }
}

}  // namespace penstock
