#include "actors/gateway/descriptor_socket.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "actors/gateway/endpoint.hpp"

namespace penstock {
namespace {

/// Old descriptors are looked for so often.
constexpr int kLookMs = 5000;
constexpr int kPauseMs = 100;

/// Receives one whole record and the descriptor beside it, if there is one.
bool receive(int connection, DescriptorRecord& record, GpuDescriptor& descriptor) {
  iovec piece{&record, sizeof record};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); got >= 0 && part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      descriptor = GpuDescriptor(fd);  // of several the last stays open
    }
  }
  return got == static_cast<ssize_t>(sizeof record);
}

bool send(int connection, const DescriptorRecord& record, int fd) {
  iovec piece{const_cast<DescriptorRecord*>(&record), sizeof record};
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
  return ::sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof record);
}

bool may_connect(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == 0 || peer.uid == ::geteuid();
}

}  // namespace

Result<std::unique_ptr<DescriptorSocket>> DescriptorSocket::start(std::filesystem::path path,
                                                                  Options options) {
  const auto failed = [&](const char* what) {
    return fail(ErrorCode::kResourceExhausted, "descriptor socket {}: {}: {}", path.string(), what,
                std::strerror(errno));
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.string().size() >= sizeof address.sun_path)
    return fail(ErrorCode::kInvalidArgument,
                "descriptor socket {}: a Unix socket's path has at most {} bytes", path.string(),
                sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, path.c_str(), path.string().size() + 1);
  // Records, not a stream: each is received whole.
  GpuDescriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.get() < 0) return failed("socket");
  ::unlink(path.c_str());  // of a run before: the request socket beside it is ours already
  {
    const OwnersOnly mask;
    if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      return failed("bind");
  }
  if (::listen(listener.get(), 16) != 0) return failed("listen");
  GpuDescriptor bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (bell.get() < 0) return failed("eventfd");
  return std::unique_ptr<DescriptorSocket>(
      new DescriptorSocket(std::move(path), options, std::move(listener), std::move(bell)));
}

DescriptorSocket::DescriptorSocket(std::filesystem::path path, Options options,
                                   GpuDescriptor listener, GpuDescriptor bell)
    : path_(std::move(path)),
      options_(options),
      listener_(std::move(listener)),
      bell_(std::move(bell)),
      thread_([this] { run(); }) {}

DescriptorSocket::~DescriptorSocket() {
  const std::uint64_t ring = 1;
  [[maybe_unused]] const auto rung = ::write(bell_.get(), &ring, sizeof ring);
  thread_.join();
  ::unlink(path_.c_str());
}

void DescriptorSocket::run() {
  pthread_setname_np(pthread_self(), "ps-descriptor");
  for (;;) {
    // Without descriptors left a connection cannot be taken, and would wake us again at once.
    const short wanted = std::exchange(cannot_take_, false) ? 0 : POLLIN;
    std::vector<pollfd> watched{{bell_.get(), POLLIN, 0}, {listener_.get(), wanted, 0}};
    for (const GpuDescriptor& each : connections_) watched.push_back({each.get(), POLLIN, 0});
    ::poll(watched.data(), watched.size(), wanted != 0 ? kLookMs : kPauseMs);
    if (watched[0].revents != 0) return;
    std::vector<GpuDescriptor> left;
    for (std::size_t i = 0; i < connections_.size(); ++i)
      if (watched[i + 2].revents == 0 || serve(connections_[i].get()))
        left.push_back(std::move(connections_[i]));
    connections_ = std::move(left);
    if (watched[1].revents != 0) take_connection();
    forget_old();
  }
}

void DescriptorSocket::take_connection() {
  GpuDescriptor connection(
      ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  cannot_take_ = connection.get() < 0 && (errno == EMFILE || errno == ENFILE);
  if (connection.get() < 0 || connections_.size() >= options_.connections ||
      !may_connect(connection.get()))
    return;
  connections_.push_back(std::move(connection));
}

/// False: the connection is over.
bool DescriptorSocket::serve(int connection) {
  DescriptorRecord asked;
  GpuDescriptor came;
  if (!receive(connection, asked, came)) return false;
  if (asked.kind == DescriptorRecord::kGive && came.get() >= 0) {
    const auto token = keep(given_, std::move(came));
    if (token) return send(connection, {DescriptorRecord::kGiven, *token}, -1);
  }
  if (asked.kind == DescriptorRecord::kTake) {
    const auto found = fetch(offered_, asked.token);
    if (found) return send(connection, {DescriptorRecord::kTaken, asked.token}, found->get());
  }
  return send(connection, {DescriptorRecord::kRefused, asked.token}, -1);
}

Result<GpuDescriptor> DescriptorSocket::claim(std::uint64_t token) { return fetch(given_, token); }

Result<std::uint64_t> DescriptorSocket::offer(GpuDescriptor descriptor) {
  return keep(offered_, std::move(descriptor));
}

Result<std::uint64_t> DescriptorSocket::keep(Store& store, GpuDescriptor descriptor) {
  std::uint64_t token = 0;
  if (::getrandom(&token, sizeof token, 0) != static_cast<ssize_t>(sizeof token))
    return fail(ErrorCode::kInternal, "getrandom failed: {}", std::strerror(errno));
  token |= 1;  // never 0
  const std::lock_guard lock(mutex_);
  if (store.size() >= options_.kept)
    return fail(ErrorCode::kResourceExhausted,
                "{} descriptors wait to be fetched: fetch them, or wait {} s", store.size(),
                options_.keep.count());
  store[token] = {std::move(descriptor), std::chrono::steady_clock::now() + options_.keep};
  return token;
}

Result<GpuDescriptor> DescriptorSocket::fetch(Store& store, std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  const auto found = store.find(token);
  if (found == store.end())
    return fail(ErrorCode::kNotFound,
                "no descriptor {:x}: it was fetched already, or {} s have passed", token,
                options_.keep.count());
  GpuDescriptor descriptor = std::move(found->second.descriptor);
  store.erase(found);
  return descriptor;
}

void DescriptorSocket::forget_old() {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  for (Store* store : {&given_, &offered_})
    std::erase_if(*store, [&](const auto& each) { return each.second.until <= now; });
}

}  // namespace penstock
