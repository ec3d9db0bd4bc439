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
constexpr std::size_t kMostTogether = 4;  // descriptors

[[noreturn]] void give_up(const std::string& path, const char* what) {
  throw Error("UNSUPPORTED", "descriptor socket " + path + ": " + what + ": " +
                                 std::strerror(errno) +
                                 "; it needs the service on this machine, as the same user");
}

/// Whoever listens there is the user that we are, or root. A client of root's takes anybody's word,
/// as it does for all else.
bool is_ours(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == 0 || peer.uid == ::geteuid() || ::geteuid() == 0;
}

/// Asks once, with `given` beside it unless that is -1; the descriptors of the answer are in
/// `taken`.
Record ask(const std::string& path, Record record, int given, std::vector<RingDescriptor>& taken) {
  if (path.empty())
    throw Error("UNSUPPORTED", "the service has no descriptor socket: it uses no GPU");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) give_up(path, "its path is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const RingDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  // Bounds connect(), too, which waits while a stopped service's backlog is full.
  const timeval patience{kAnswerMs / 1000, kAnswerMs % 1000 * 1000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (socket.get() < 0 ||
      ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    give_up(path, "cannot connect");
  if (!is_ours(socket.get())) give_up(path, "another user listens there");
  iovec piece{&record, sizeof record};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostTogether * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (given >= 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof given);
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof given);
    std::memcpy(CMSG_DATA(part), &given, sizeof given);
  }
  if (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof record))
    give_up(path, "cannot send");
  pollfd watched{socket.get(), POLLIN, 0};
  if (::poll(&watched, 1, kAnswerMs) != 1) give_up(path, "no answer");
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof record))
    give_up(path, "the service closed it");
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      taken.emplace_back(fd);
    }
  }
  return record;
}

}  // namespace

std::uint64_t give_descriptor(const std::string& socket_path, int fd) {
  std::vector<RingDescriptor> none;
  const Record answer = ask(socket_path, {kGive, 0}, fd, none);
  if (answer.kind == kGiven) return answer.token;
  throw Error("RESOURCE_EXHAUSTED", "the service takes no more descriptors now");
}

std::vector<RingDescriptor> take_descriptors(const std::string& socket_path, std::uint64_t token) {
  std::vector<RingDescriptor> taken;
  const Record answer = ask(socket_path, {kTake, token}, -1, taken);
  if (answer.kind == kTaken && !taken.empty()) return taken;
  throw Error("NOT_FOUND", "the descriptor was fetched already, or too long ago");
}

int take_descriptor(const std::string& socket_path, std::uint64_t token) {
  return take_descriptors(socket_path, token).front().release();
}

}  // namespace penstock::client
