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
#include <tuple>

#include "actors/gateway/endpoint.hpp"

namespace penstock {
namespace {

/// Old descriptors are looked for so often.
constexpr int kLookMs = 5000;
constexpr int kPauseMs = 100;
constexpr std::size_t kMostTogether = 4;  // descriptors

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

bool send(int connection, const DescriptorRecord& record,
          const std::vector<GpuDescriptor>& descriptors = {}) {
  iovec piece{const_cast<DescriptorRecord*>(&record), sizeof record};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostTogether * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const std::size_t bytes = descriptors.size() * sizeof(int);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(bytes);
    for (std::size_t i = 0; i < descriptors.size(); ++i) {
      const int fd = descriptors[i].get();
      std::memcpy(CMSG_DATA(part) + i * sizeof fd, &fd, sizeof fd);
    }
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
  if (auto prepared = prepare_endpoint("descriptor socket", "ipc://" + path.string()); !prepared)
    return tl::unexpected(prepared.error());
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

void DescriptorSocket::remove_stale(const std::filesystem::path& folder,
                                    const std::string& prefix) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    // Looks whether somebody listens, and removes it where nobody does.
    if (name.starts_with(prefix) && name.ends_with(".fd") && entry.is_socket(ignored))
      std::ignore = prepare_endpoint("descriptor socket", "ipc://" + entry.path().string());
  }
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
    std::vector<GpuDescriptor> one;
    one.push_back(std::move(came));
    const auto token = keep(given_, std::move(one));
    if (token) return send(connection, {DescriptorRecord::kGiven, *token});
  }
  if (asked.kind == DescriptorRecord::kTake) {
    const auto found = fetch(offered_, asked.token);
    if (found) return send(connection, {DescriptorRecord::kTaken, asked.token}, *found);
  }
  return send(connection, {DescriptorRecord::kRefused, asked.token});
}

Result<GpuDescriptor> DescriptorSocket::claim(std::uint64_t token) {
  return fetch(given_, token).map([](std::vector<GpuDescriptor> descriptors) {
    return std::move(descriptors.front());
  });
}

Result<std::uint64_t> DescriptorSocket::offer(std::vector<GpuDescriptor> descriptors) {
  if (descriptors.empty() || descriptors.size() > kMostTogether)
    return fail(ErrorCode::kInvalidArgument, "{} descriptors together, 1 to {} can be offered",
                descriptors.size(), kMostTogether);
  return keep(offered_, std::move(descriptors));
}

Result<std::uint64_t> DescriptorSocket::offer(GpuDescriptor descriptor) {
  std::vector<GpuDescriptor> one;
  one.push_back(std::move(descriptor));
  return offer(std::move(one));
}

void DescriptorSocket::withdraw(std::uint64_t token) { std::ignore = fetch(offered_, token); }

Result<std::uint64_t> DescriptorSocket::keep(Store& store, std::vector<GpuDescriptor> descriptors) {
  std::uint64_t token = 0;
  if (::getrandom(&token, sizeof token, 0) != static_cast<ssize_t>(sizeof token))
    return fail(ErrorCode::kInternal, "getrandom failed: {}", std::strerror(errno));
  token |= 1;  // never 0
  const std::lock_guard lock(mutex_);
  if (store.size() >= options_.kept)
    return fail(ErrorCode::kResourceExhausted,
                "{} descriptors wait to be fetched: fetch them, or wait {} s", store.size(),
                options_.keep.count());
  store[token] = {std::move(descriptors), std::chrono::steady_clock::now() + options_.keep};
  return token;
}

Result<std::vector<GpuDescriptor>> DescriptorSocket::fetch(Store& store, std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  const auto found = store.find(token);
  if (found == store.end())
    return fail(ErrorCode::kNotFound,
                "no descriptor {:x}: it was fetched already, or {} s have passed", token,
                options_.keep.count());
  std::vector<GpuDescriptor> descriptors = std::move(found->second.descriptors);
  store.erase(found);
  return descriptors;
}

void DescriptorSocket::forget_old() {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  for (Store* store : {&given_, &offered_})
    std::erase_if(*store, [&](const auto& each) { return each.second.until <= now; });
}

}  // namespace penstock
