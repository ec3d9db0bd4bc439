#include "transport/fabric/half_open.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace penstock {
namespace {

/// Listens on this loopback address; port 0 lets the kernel choose.
struct Listener {
  explicit Listener(const char* host, std::uint16_t port = 0)
      : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    ::inet_pton(AF_INET, host, &address.sin_addr);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    good = ::bind(socket, generic, size) == 0 && ::listen(socket, 4) == 0 &&
           ::getsockname(socket, generic, &size) == 0;
  }
  ~Listener() { ::close(socket); }
  std::uint16_t port() const { return ntohs(address.sin_port); }
  FabricAddress fabric_address() const {
    FabricAddress bytes(sizeof address);
    std::memcpy(bytes.data(), &address, sizeof address);
    return bytes;
  }
  /// Whether a connection to `host` on our port is taken.
  bool takes(const char* host) const {
    sockaddr_in to = address;
    ::inet_pton(AF_INET, host, &to.sin_addr);
    const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool taken = ::connect(client, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    ::close(client);
    return taken;
  }
  int socket;
  sockaddr_in address{};
  bool good = false;
};

TEST(HalfOpen, TheSamePortOfAnotherAddressIsLeftAlone) {
  Listener closing("127.0.0.1");
  ASSERT_TRUE(closing.good);
  Listener other("127.0.0.2", closing.port());  // another card of this process
  if (!other.good) GTEST_SKIP() << "127.0.0.2 is not to be had on that port";
  EXPECT_EQ(shut_down_accepted(closing.fabric_address()).size(), 1u);
  EXPECT_FALSE(closing.takes("127.0.0.1"));
  EXPECT_TRUE(other.takes("127.0.0.2"));
}

TEST(HalfOpen, AListenerOnAnyAddressEndsWithWhatItAccepted) {
  Listener any("0.0.0.0");
  ASSERT_TRUE(any.good);
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = any.address;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  const int accepted = ::accept(any.socket, nullptr, nullptr);
  ASSERT_GE(accepted, 0);
  EXPECT_EQ(shut_down_accepted(any.fabric_address()).size(),
            2u);  // itself, and 127.0.0.1 on its port
  char byte = 0;
  EXPECT_EQ(::recv(client, &byte, 1, 0), 0);  // hung up
  ::close(accepted);
  ::close(client);
}

TEST(HalfOpen, OnlyTheConnectionsOfThisCardToThisPeerAreShutDown) {
  Listener gone("127.0.0.1"), staying("127.0.0.1");
  ASSERT_TRUE(gone.good && staying.good);
  const auto connect_from = [](const char* host, const Listener& to) {
    const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in from{};
    from.sin_family = AF_INET;
    ::inet_pton(AF_INET, host, &from.sin_addr);
    EXPECT_EQ(::bind(client, reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
    EXPECT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&to.address), sizeof to.address),
              0);
    return client;
  };
  const auto hung_up = [](int client) {
    char byte = 0;
    return ::recv(client, &byte, 1, MSG_DONTWAIT) == 0;
  };
  const int ours = connect_from("127.0.0.1", gone);
  const int to_another_peer = connect_from("127.0.0.1", staying);
  const int of_another_card = connect_from("127.0.0.2", gone);
  const Listener card("127.0.0.1");  // whatever its port
  EXPECT_EQ(shut_down_connected(card.fabric_address(), gone.fabric_address()), 1u);
  EXPECT_TRUE(hung_up(ours));
  EXPECT_FALSE(hung_up(to_another_peer));
  EXPECT_FALSE(hung_up(of_another_card));
  for (const int client : {ours, to_another_peer, of_another_card}) ::close(client);
}

// A peer that went dark keeps its connections to us, and the kernel asks it ever more rarely.
TEST(HalfOpen, OfAcceptedConnectionsFromAHostOnlyTheSilentEnd) {
  Listener own("127.0.0.1");
  ASSERT_TRUE(own.good);
  const auto join = [&](int& client, int& accepted) {
    client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&own.address), sizeof own.address), 0);
    accepted = ::accept(own.socket, nullptr, nullptr);
    ASSERT_GE(accepted, 0);
  };
  int dark = -1, to_dark = -1, lively = -1, to_lively = -1;
  join(dark, to_dark);
  join(lively, to_lively);
  using std::chrono::milliseconds;
  const Listener elsewhere("127.0.0.2");
  EXPECT_EQ(end_when_silent(own.fabric_address(), elsewhere.fabric_address(), milliseconds(100)),
            0u);
  EXPECT_EQ(end_when_silent(own.fabric_address(), own.fabric_address(), milliseconds(100)), 2u);
  // Nobody reads at the dark one: once its window is full, nothing more is acknowledged.
  const std::vector<char> bytes(1 << 16);
  const auto send = [&](int socket, std::size_t size) {
    return ::send(socket, bytes.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL);
  };
  while (send(to_dark, bytes.size()) > 0) continue;
  const auto ended = [&] { return send(to_dark, 1) < 0 && errno != EAGAIN; };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!ended() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(ended());
  EXPECT_EQ(send(to_lively, 1), 1);
  for (const int socket : {dark, to_dark, lively, to_lively}) ::close(socket);
}

// The provider waits without end for the first word of whoever connects, and may forget one that
// hung up or stopped in the middle of it.
class Unspoken : public testing::Test {
 protected:
  struct Connection {
    int client = -1;
    int accepted = -1;
  };
  Connection connect(const Listener& to, std::size_t says, std::size_t read) {
    Connection one;
    one.client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(
        ::connect(one.client, reinterpret_cast<const sockaddr*>(&to.address), sizeof to.address),
        0);
    one.accepted = ::accept(to.socket, nullptr, nullptr);
    EXPECT_GE(one.accepted, 0);
    const std::vector<char> bytes(says);
    EXPECT_EQ(::send(one.client, bytes.data(), says, 0), static_cast<ssize_t>(says));
    std::vector<char> into(read);
    EXPECT_EQ(::recv(one.accepted, into.data(), read, read > 0 ? MSG_WAITALL : MSG_DONTWAIT) > 0,
              read > 0);
    return one;
  }
  static bool hung_up(int client) {
    char byte = 0;
    return ::recv(client, &byte, 1, MSG_DONTWAIT) == 0;
  }
  static bool hangs_up(int client) {
    pollfd descriptor{client, POLLIN, 0};
    return ::poll(&descriptor, 1, 20'000) == 1 && hung_up(client);
  }
  static bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }
  /// A whole walk, `later` than the test's beginning.
  std::size_t end(std::chrono::seconds later) {
    const std::array addresses{FabricAddress(1), own.fabric_address()};
    std::size_t connections = 0;
    for (bool more = true; more;) {
      const auto ended = unspoken.look(3, addresses, std::chrono::seconds(10), begin + later);
      connections += ended.connections;
      more = ended.more;
    }
    return connections;
  }

  UnspokenConnections unspoken;
  UnspokenConnections::Clock::time_point begin{};
  Listener own{"127.0.0.1"}, other{"127.0.0.1"};
};

TEST_F(Unspoken, ConnectionsAreEndedAndThoseThatAreStillThereThenClosed) {
  using namespace std::chrono_literals;
  ASSERT_TRUE(own.good && other.good);
  const auto silent = connect(own, 0, 0), begun = connect(own, 39, 39),
             spoke = connect(own, 40, 40);
  const auto gone = connect(own, 39, 39), elsewhere = connect(other, 0, 0);
  // What was forgotten in the middle of a request is not read on, whatever comes, and when.
  const auto stopped = connect(own, 33, 32);
  const auto done_and_gone = connect(own, 40, 40);
  ::close(gone.client);
  ::close(done_and_gone.client);
  EXPECT_EQ(end(0s), 0u);
  EXPECT_EQ(end(9s), 0u);
  ASSERT_EQ(::send(stopped.client, "another word", 12, 0), 12);
  const auto late = connect(own, 0, 0);
  EXPECT_EQ(end(10s), 4u);
  EXPECT_TRUE(hangs_up(silent.client) && hangs_up(begun.client) && hangs_up(stopped.client));
  EXPECT_FALSE(hung_up(spoke.client) || hung_up(elsewhere.client) || hung_up(late.client));
  EXPECT_TRUE(own.takes("127.0.0.1"));
  for (const auto& each : {silent, begun, gone, stopped}) EXPECT_TRUE(is_open(each.accepted));
  // What the provider had not closed by now it does not know.
  EXPECT_EQ(end(15s), 4u);
  for (const auto& each : {silent, begun, gone, stopped}) EXPECT_FALSE(is_open(each.accepted));
  for (const auto& each : {spoke, elsewhere, done_and_gone, late})
    EXPECT_TRUE(is_open(each.accepted));
  for (const auto& each : {silent, begun, stopped, spoke, elsewhere, late}) ::close(each.client);
  for (const auto& each : {spoke, elsewhere, done_and_gone, late}) ::close(each.accepted);
}

TEST_F(Unspoken, ANumberThatIsAnothersByNowIsSeenAnew) {
  using namespace std::chrono_literals;
  ASSERT_TRUE(own.good);
  const auto first = connect(own, 0, 0);
  EXPECT_EQ(end(0s), 0u);
  const auto second = connect(own, 0, 0);
  ASSERT_EQ(::dup2(second.accepted, first.accepted), first.accepted);
  ::close(second.accepted);
  EXPECT_EQ(end(10s), 0u);
  EXPECT_EQ(end(20s), 1u);
  for (const int fd : {first.client, first.accepted, second.client}) ::close(fd);
}

TEST_F(Unspoken, WhatAClosedEndpointLeftIsClosedUnlessTheNumberIsAnothers) {
  ASSERT_TRUE(own.good && other.good);
  const auto left = connect(own, 0, 0), replaced = connect(own, 0, 0),
             elsewhere = connect(other, 0, 0);
  const auto sockets = shut_down_accepted(own.fabric_address());
  EXPECT_EQ(sockets.size(), 3u);  // and the listener
  ASSERT_EQ(::dup2(elsewhere.accepted, replaced.accepted), replaced.accepted);
  close_left(sockets);
  EXPECT_FALSE(is_open(left.accepted));
  EXPECT_TRUE(is_open(replaced.accepted) && is_open(elsewhere.accepted));
  own.socket = -1;
  for (const int fd :
       {left.client, replaced.client, replaced.accepted, elsewhere.client, elsewhere.accepted})
    ::close(fd);
}

TEST_F(Unspoken, WhatAListenerAcceptsDoesNotWaitForLongToBeRead) {
  ASSERT_TRUE(own.good);
  EXPECT_EQ(bound_first_reads(own.fabric_address(), std::chrono::milliseconds(1)), 1u);
  const auto one = connect(own, 0, 0);
  char byte = 0;
  EXPECT_EQ(::recv(one.accepted, &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
  ::close(one.client);
  ::close(one.accepted);
}

}  // namespace
}  // namespace penstock
