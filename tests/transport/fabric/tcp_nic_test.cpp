// What only the tcp provider's cards can show.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "tests/transport/fabric/fabric_pair.hpp"

namespace penstock {
namespace {

using test::Operation;
using test::Side;

class TcpNic : public test::FabricPair {};

int descriptors() {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += fcntl(fd, F_GETFD) != -1;
  return count;
}
INSTANTIATE_TEST_SUITE_P(Loopback, TcpNic, ::testing::Values("tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(TcpNic, AWrongKeyIsAnErrorAndNothingLands) {
  a.fill(9);
  Operation operation;
  auto request = a.write(to_b, b, 0, 0, 4096);
  request.remote_key ^= 1;
  ASSERT_TRUE(post(a, request, &operation));
  ASSERT_TRUE(until([&] { return operation.completions > 0; }));
  EXPECT_FALSE(operation.ok);
  EXPECT_NE(operation.error_number, 0);
  EXPECT_EQ(b.memory[0], std::byte{0});
}

TEST_P(TcpNic, AClosedRegistrationIsNotWritable) {
  const auto key = b.registration->key();
  b.registration.reset();
  Operation operation;
  OneSided request;
  request.peer = to_b;
  request.local[0] = {a.memory.data(), 64};
  request.length = 64;
  request.remote_key = key;
  ASSERT_TRUE(post(a, request, &operation));
  ASSERT_TRUE(until([&] { return operation.completions > 0; }));
  EXPECT_FALSE(operation.ok);
}

TEST_P(TcpNic, IdleCardsAreNotReadableAndWorkMakesThemSo) {
  ASSERT_TRUE(until([&] { return a.poll() + b.poll() == 0; }));
  const auto readable = [](const Side& side, int timeout_ms) {
    pollfd descriptor{side.nic->info().wait_fd, POLLIN, 0};
    return ::poll(&descriptor, 1, timeout_ms) == 1;
  };
  // Connect first and let everything settle.
  Operation operation;
  ASSERT_TRUE(post(a, a.write(to_b, b, 0, 0, 64), &operation));
  ASSERT_TRUE(until([&] { return operation.completions > 0; }));
  for (int i = 0; i < 100; ++i) {
    a.poll();
    b.poll();
  }
  EXPECT_FALSE(readable(a, 20));
  EXPECT_FALSE(readable(b, 20));
  EXPECT_TRUE(b.nic->may_wait());
  Operation second;
  ASSERT_EQ(a.nic->post(a.write(to_b, b, 0, 0, 64), &second).status, PostStatus::kPosted);
  EXPECT_TRUE(readable(b, 5000));
}

TEST_P(TcpNic, AStrayConnectionThatOutlivesTheEndpointDoesNoHarm) {
  // Connects to the inbound endpoint, says nothing while it is reopened, and hangs up later.
  const auto address = b.nic->inbound_address();
  const int stray = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(stray, 0);
  ASSERT_EQ(connect(stray, reinterpret_cast<const sockaddr*>(address.data()),
                    static_cast<socklen_t>(address.size())),
            0);
  for (int i = 0; i < 100; ++i) b.poll();
  ASSERT_TRUE(b.nic->reopen_inbound());
  for (int i = 0; i < 100; ++i) b.poll();
  [[maybe_unused]] const auto written = write(stray, "late words", 10);
  close(stray);
  for (int i = 0; i < 100; ++i) b.poll();
  Operation operation;
  const auto to_new = a.nic->add_peer(b.nic->inbound_address()).value();
  ASSERT_TRUE(post(a, a.write(to_new, b, 0, 0, 64), &operation));
  ASSERT_TRUE(until([&] { return operation.completions > 0; }));
  EXPECT_TRUE(operation.ok);
}

TEST_P(TcpNic, ConnectionsThatNeverSpeakLeaveNoDescriptorsBehind) {
  ASSERT_TRUE(until([&] { return a.poll() + b.poll() == 0; }));
  const int before = descriptors();
  const auto address = b.nic->inbound_address();
  std::vector<int> silent(16);
  for (int& each : silent) {
    each = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(each, reinterpret_cast<const sockaddr*>(address.data()),
                      static_cast<socklen_t>(address.size())),
              0);
  }
  ASSERT_TRUE(until([&] { return descriptors() == before + 32; }));  // both ends
  for (const int each : silent) close(each);
  EXPECT_TRUE(until([&] {
    const bool freed = descriptors() == before;
    errno = EAGAIN;  // what the thread's last call, whichever, may have left
    return freed;
  }));
}

// The provider reads the two halves of a connection request from a socket that blocks.
TEST_P(TcpNic, HalfAConnectionRequestHoldsNobodyUp) {
  const auto address = b.nic->control_address();
  const int stranger = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(stranger, reinterpret_cast<const sockaddr*>(address.data()),
                    static_cast<socklen_t>(address.size())),
            0);
  // Version 3, a connection request (0), 8 bytes follow: libfabric, struct ofi_ctrl_hdr.
  std::array<unsigned char, 32> half{};
  half[0] = 3;
  half[3] = 8;
  ASSERT_EQ(::send(stranger, half.data(), half.size(), 0), 32);
  Operation operation;
  ASSERT_TRUE(post(a, a.write(to_b, b, 0, 0, 64), &operation));
  ASSERT_TRUE(until([&] { return operation.completions > 0; }));
  EXPECT_TRUE(operation.ok);
  for (int i = 0; i < 1000; ++i) b.poll();
  EXPECT_TRUE(until([&] {
    b.nic->tidy(std::chrono::milliseconds(1));
    char byte = 0;
    return recv(stranger, &byte, 1, MSG_DONTWAIT) == 0;
  }));
  close(stranger);
}

TEST_P(TcpNic, ConnectionsThatNeverSpeakEndAtItsTidying) {
  Operation operation;
  ASSERT_TRUE(post(a, a.write(to_b, b, 0, 0, 64), &operation));
  ASSERT_TRUE(until([&] { return operation.completions > 0; }));
  const int before = descriptors();
  std::vector<int> silent;
  for (const auto& address : {b.nic->control_address(), b.nic->inbound_address()}) {
    silent.push_back(socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(connect(silent.back(), reinterpret_cast<const sockaddr*>(address.data()),
                      static_cast<socklen_t>(address.size())),
              0);
  }
  ASSERT_TRUE(until([&] { return descriptors() == before + 4; }));
  b.nic->tidy(std::chrono::hours(1));
  for (int i = 0; i < 100; ++i) b.poll();
  const int with_them = descriptors();
  EXPECT_GE(with_them, before + 4);
  // It is needed most when no descriptor is left.
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit low{256, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<int> fillers;
  for (int fd = dup(silent[0]); fd != -1; fd = dup(silent[0])) fillers.push_back(fd);
  const int full = descriptors();
  const bool freed = until([&] {
    b.nic->tidy(std::chrono::milliseconds(1));
    return descriptors() == full - 2;  // our ends stay
  });
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(freed);
  EXPECT_FALSE(fillers.empty());
  for (const int each : fillers) close(each);
  for (const int each : silent) close(each);
  // Those that spoke once are still connected, and no new connection is made for this.
  Operation again;
  ASSERT_EQ(a.nic->post(a.write(to_b, b, 0, 0, 64), &again).status, PostStatus::kPosted);
  ASSERT_TRUE(until([&] { return again.completions > 0; }));
  EXPECT_TRUE(again.ok);
}

TEST_P(TcpNic, ReadsThatAreCutHalfwayDoNotHarmWhatComesAfter) {
  b.fill(8);
  std::vector<Operation> cut;
  for (int round = 0; round < 8; ++round) {
    std::fill(a.memory.begin(), a.memory.end(), std::byte{0});
    cut = std::vector<Operation>(4);
    for (auto& each : cut) {
      OneSided read = a.write(to_b, b, 0, 0, a.memory.size());
      read.direction = Direction::kRead;
      ASSERT_TRUE(post(a, read, &each));
    }
    // Until the first bytes of one are there, but not its last.
    ASSERT_TRUE(until([&] { return a.memory[0] == b.memory[0] && a.memory[1] == b.memory[1]; }));
    ASSERT_TRUE(a.nic->reopen_outbound());
    // More at once than the provider has had until now: each needs an entry of its own.
    std::vector<Operation> after(512);
    for (auto& each : after) ASSERT_TRUE(post(a, a.write(to_b, b, 0, 0, 512), &each));
    ASSERT_TRUE(until([&] {
      return std::all_of(after.begin(), after.end(), [](auto& o) { return o.completions > 0; });
    }));
    for (const auto& each : after) {
      EXPECT_EQ(each.completions, 1);
      EXPECT_TRUE(each.ok);
    }
    b.fill(8);
  }
}

TEST_P(TcpNic, ReopeningOverAndOverLeavesNoDescriptorsBehind) {
  int first = 0;
  for (int round = 0; round < 50; ++round) {
    Operation operation;
    ASSERT_TRUE(post(a, a.write(to_b, b, 0, 0, 64), &operation));
    ASSERT_TRUE(until([&] { return operation.completions > 0; }));
    ASSERT_TRUE(a.nic->reopen_outbound());
    ASSERT_TRUE(b.nic->reopen_inbound());
    a.nic->remove_peer(to_b);
    to_b = a.nic->add_peer(b.nic->inbound_address()).value();
    for (int i = 0; i < 50; ++i) {
      a.poll();
      b.poll();
    }
    if (round == 5) first = descriptors();
  }
  EXPECT_LE(descriptors(), first + 2);
}

}  // namespace
}  // namespace penstock
