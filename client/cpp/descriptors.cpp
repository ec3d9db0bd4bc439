#include "client/cpp/descriptors.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "client/cpp/error.hpp"

namespace penstock::client {
namespace {

/// One record each way, as the service has it (actors/gateway/descriptor_socket.hpp).
struct Record {
  std::uint64_t kind = 0;
  std::uint64_t token = 0;
};
constexpr std::uint64_t kGive = 1;
constexpr std::uint64_t kTake = 2;
constexpr std::uint64_t kGiven = 3;
constexpr std::uint64_t kTaken = 4;
constexpr int kAnswerMs = 5000;

struct Socket {
  int fd = -1;
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void give_up(const std::string& path, const char* what) {
  throw Error("UNSUPPORTED", "descriptor socket " + path + ": " + what + ": " +
                                 std::strerror(errno) +
                                 "; it needs the service on this machine, as the same user");
}

/// Asks once; the descriptor of the answer, or -1, is in `fd` afterwards.
Record ask(const std::string& path, Record record, int& fd) {
  if (path.empty())
    throw Error("UNSUPPORTED", "the service has no descriptor socket: it uses no GPU");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) give_up(path, "its path is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Socket socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  // Bounds connect(), too, which waits while a stopped service's backlog is full.
  const timeval patience{kAnswerMs / 1000, kAnswerMs % 1000 * 1000};
  ::setsockopt(socket.fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (socket.fd < 0 ||
      ::connect(socket.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    give_up(path, "cannot connect");
  iovec piece{&record, sizeof record};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  }
  fd = -1;
  if (::sendmsg(socket.fd, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof record))
    give_up(path, "cannot send");
  pollfd watched{socket.fd, POLLIN, 0};
  if (::poll(&watched, 1, kAnswerMs) != 1) give_up(path, "no answer");
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket.fd, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof record))
    give_up(path, "the service closed it");
  if (const cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr)
    std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
  return record;
}

}  // namespace

std::uint64_t give_descriptor(const std::string& socket_path, int fd) {
  const Record answer = ask(socket_path, {kGive, 0}, fd);
  if (answer.kind == kGiven) return answer.token;
  throw Error("RESOURCE_EXHAUSTED", "the service takes no more descriptors now");
}

int take_descriptor(const std::string& socket_path, std::uint64_t token) {
  int fd = -1;
  const Record answer = ask(socket_path, {kTake, token}, fd);
  if (answer.kind == kTaken && fd >= 0) return fd;
  throw Error("NOT_FOUND", "the descriptor was fetched already, or too long ago");
}

}  // namespace penstock::client
