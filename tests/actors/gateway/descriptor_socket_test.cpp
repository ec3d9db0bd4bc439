// Descriptors over the Unix socket beside the request socket. They are of files here: what they
// stand for does not matter to the socket.
#include "actors/gateway/descriptor_socket.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <optional>

namespace penstock {
namespace {

struct Answer {
  DescriptorRecord record;
  GpuDescriptor descriptor;
};

/// What a client does.
class Visitor {
 public:
  explicit Visitor(const std::filesystem::path& path)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    connected_ =
        ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  bool connected() const { return connected_; }
  void send_bytes(std::size_t count) {
    const std::vector<char> bytes(count, 7);
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(count));
  }
  void send(DescriptorRecord record, int fd = -1) {
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
    EXPECT_EQ(::sendmsg(socket_.get(), &message, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof record));
  }
  /// Nothing: the connection was closed.
  std::optional<Answer> receive() {
    pollfd watched{socket_.get(), POLLIN, 0};
    if (::poll(&watched, 1, 10'000) != 1) return std::nullopt;
    Answer answer;
    iovec piece{&answer.record, sizeof answer.record};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC) !=
        static_cast<ssize_t>(sizeof answer.record))
      return std::nullopt;
    if (const cmsghdr* part = CMSG_FIRSTHDR(&message)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
      answer.descriptor = GpuDescriptor(fd);
    }
    return answer;
  }

 private:
  GpuDescriptor socket_;
  bool connected_ = false;
};

class DescriptorSocketTest : public testing::Test {
 protected:
  DescriptorSocketTest() { start({}); }
  ~DescriptorSocketTest() override {
    socket_.reset();
    EXPECT_FALSE(std::filesystem::exists(path_)) << "left behind";
  }
  void start(DescriptorSocket::Options options) {
    socket_.reset();
    socket_ = std::move(*DescriptorSocket::start(path_, options));
  }
  static GpuDescriptor file(const char* text) {
    GpuDescriptor made(::memfd_create("test", MFD_CLOEXEC));
    EXPECT_EQ(::write(made.get(), text, std::strlen(text)),
              static_cast<ssize_t>(std::strlen(text)));
    return made;
  }
  static std::string content(const GpuDescriptor& descriptor) {
    std::string text(64, '\0');
    const ssize_t got = ::pread(descriptor.get(), text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }
  std::uint64_t give(Visitor& visitor, const char* text) {
    const GpuDescriptor made = file(text);
    visitor.send({DescriptorRecord::kGive, 0}, made.get());
    const auto answer = visitor.receive();
    if (!answer || answer->record.kind != DescriptorRecord::kGiven) return 0;
    return answer->record.token;
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / fmt::format("penstock-test-{}.fd", ::getpid());
  std::unique_ptr<DescriptorSocket> socket_;
};

TEST_F(DescriptorSocketTest, WhatIsHandedInIsClaimedOnceByItsToken) {
  Visitor visitor(path_);
  const auto first = give(visitor, "first");
  const auto second = give(visitor, "second");
  ASSERT_NE(first, 0u);
  ASSERT_NE(second, first);
  EXPECT_EQ(content(*socket_->claim(second)), "second");
  EXPECT_EQ(content(*socket_->claim(first)), "first");
  EXPECT_EQ(socket_->claim(first).error().code, ErrorCode::kNotFound);
}

TEST_F(DescriptorSocketTest, WhatIsOfferedIsFetchedOnceByItsToken) {
  const auto token = *socket_->offer(file("mine"));
  Visitor visitor(path_);
  visitor.send({DescriptorRecord::kTake, token});
  auto answer = visitor.receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->record.kind, DescriptorRecord::kTaken);
  EXPECT_EQ(content(answer->descriptor), "mine");
  visitor.send({DescriptorRecord::kTake, token});
  answer = visitor.receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->record.kind, DescriptorRecord::kRefused);
  EXPECT_LT(answer->descriptor.get(), 0);
}

TEST_F(DescriptorSocketTest, AGiftCannotBeFetchedNorAnOfferClaimed) {
  Visitor visitor(path_);
  visitor.send({DescriptorRecord::kTake, give(visitor, "gift")});
  EXPECT_EQ(visitor.receive()->record.kind, DescriptorRecord::kRefused);
  EXPECT_FALSE(socket_->claim(*socket_->offer(file("offer"))));
}

TEST_F(DescriptorSocketTest, NonsenseCostsTheConnectionOrARefusalAndNothingElse) {
  Visitor shorter(path_);
  shorter.send_bytes(3);
  EXPECT_FALSE(shorter.receive()) << "closed";
  Visitor unknown(path_);
  unknown.send({99, 1});
  EXPECT_EQ(unknown.receive()->record.kind, DescriptorRecord::kRefused);
  unknown.send({DescriptorRecord::kGive, 0});  // without one
  EXPECT_EQ(unknown.receive()->record.kind, DescriptorRecord::kRefused);
  EXPECT_NE(give(unknown, "still served"), 0u);
}

TEST_F(DescriptorSocketTest, NoMoreAreKeptThanIsAllowed) {
  start({.connections = 2, .keep = std::chrono::seconds(30), .kept = 3});
  Visitor visitor(path_);
  for (int i = 0; i < 3; ++i) EXPECT_NE(give(visitor, "x"), 0u);
  EXPECT_EQ(give(visitor, "x"), 0u);
  EXPECT_TRUE(socket_->offer(file("an offer is another matter")));
}

TEST_F(DescriptorSocketTest, OnlyItsOwnUserMayConnect) {
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 077, 0u) << "others could connect";
}

TEST_F(DescriptorSocketTest, APathThatIsTooLongIsAnErrorThatSaysSo) {
  const auto failed = DescriptorSocket::start("/tmp/" + std::string(200, 'x'));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock
