#include "actors/gateway/gateway.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "actors/gateway/turns.hpp"
#include "actors/protocol/reply.hpp"
#include "tests/actors/protocol/sample_requests.hpp"
#include "tests/eventually.hpp"

namespace penstock::test {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;
constexpr int kPatienceMs = 20'000;  // a failing test waits so long; a passing one does not

/// A client as users write one.
class Dealer {
 public:
  Dealer(zmq::context_t& context, const std::string& endpoint, const std::string& identity = "",
         int receive_limit = 1000)
      : socket_(context, zmq::socket_type::dealer) {
    if (!identity.empty()) socket_.set(zmq::sockopt::routing_id, identity);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvtimeo, kPatienceMs);
    socket_.set(zmq::sockopt::rcvhwm, receive_limit);
    socket_.set(zmq::sockopt::ipv6, true);
    socket_.connect(endpoint);
  }
  void send(const json& value) { send(json::to_msgpack(value)); }
  void send(const Bytes& bytes) { socket_.send(zmq::buffer(bytes), zmq::send_flags::none); }
  void send_frames(const std::vector<std::string>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i)
      socket_.send(zmq::buffer(frames[i]),
                   i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  json receive() {
    zmq::message_t message;
    if (!socket_.recv(message)) return "nothing arrived";
    EXPECT_FALSE(message.more());
    auto* data = static_cast<const std::uint8_t*>(message.data());
    return json::from_msgpack(data, data + message.size());
  }

 private:
  zmq::socket_t socket_;
};

class GatewayTest : public ::testing::Test {
 protected:
  /// A gateway that answers hello with the client's words.
  void start(std::string endpoint = "tcp://127.0.0.1:*") {
    Gateway::Setup setup;
    setup.bind = {std::move(endpoint)};
    setup.max_unsent_bytes = 1 << 20;
    setup.sink = [this](ClientId client, Request request) { echo(client, request); };
    auto started = Gateway::start(std::move(setup));
    ASSERT_TRUE(started) << started.error().message;
    gateway_ = std::move(*started);
    started_.set_value(gateway_.get());
  }
  void echo(const ClientId& client, const Request& request) {
    Gateway& gateway = *started_future_.get();
    if (auto* hello = std::get_if<HelloRequest>(&request.body)) {
      if (hello->client == "throw") throw std::runtime_error("asked to");
      if (hello->client == "throw an int") throw 7;
      gateway.send(client, ok_reply(request.id, {{"client", hello->client}}));
    } else {
      gateway.send(client, ok_reply(request.id));
    }
  }
  std::string endpoint() const { return gateway_->endpoints().at(0); }
  Dealer connect(const std::string& identity = "") { return {context_, endpoint(), identity}; }

  zmq::context_t context_;
  // For the gateway's thread: reset() empties gateway_ before it waits for that.
  std::promise<Gateway*> started_;
  std::shared_future<Gateway*> started_future_ = started_.get_future().share();
  std::unique_ptr<Gateway> gateway_;
};

json hello(std::uint64_t id, const std::string& words) {
  return request(id, "hello", {{"client", words}});
}

/// Waits for something that another thread brings about.
Error start_error(std::vector<std::string> bind) {
  Gateway::Setup setup;
  setup.bind = std::move(bind);
  setup.sink = [](ClientId, Request) {};
  auto started = Gateway::start(std::move(setup));
  if (!started) return started.error();
  ADD_FAILURE() << "started";
  return {};
}

/// A folder that goes away with the test.
class Folder {
 public:
  Folder() {
    char pattern[] = "/tmp/gateway-test-XXXXXX";
    path_ = ::mkdtemp(pattern);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// -- requests and replies ------------------------------------------------------------------------

TEST_F(GatewayTest, AnswersHello) {
  start();
  Dealer client = connect();
  client.send(hello(5, "tester"));
  EXPECT_EQ(client.receive(), ok_reply(5, {{"client", "tester"}}));
  EXPECT_EQ(gateway_->counters().requests, 1u);
}

TEST_F(GatewayTest, KeepsManyClientsApart) {
  start();
  std::vector<Dealer> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(connect());
  for (std::size_t i = 0; i < clients.size(); ++i) clients[i].send(hello(i, std::to_string(i)));
  for (std::size_t i = 0; i < clients.size(); ++i)
    EXPECT_EQ(clients[i].receive()["client"], std::to_string(i));
}

TEST_F(GatewayTest, SendsEventsFromOtherThreadsInOrder) {
  start();
  Dealer client = connect("watcher");
  client.send(hello(1, ""));
  client.receive();
  std::thread([&] {
    for (int i = 0; i < 1000; ++i) gateway_->send("watcher", {{"seq", i}});
  }).join();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(client.receive()["seq"], i);
}

TEST_F(GatewayTest, ListenerOverIpv6) {
  int probe = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  bool there =
      probe >= 0 && ::bind(probe, reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0;
  ::close(probe);
  if (!there) GTEST_SKIP() << "this machine has no IPv6 loopback";
  start("tcp://[::1]:*");
  Dealer client = connect();
  client.send(hello(5, "six"));
  EXPECT_EQ(client.receive()["client"], "six");
}

// -- malformed input -----------------------------------------------------------------------------

TEST_F(GatewayTest, AnswersEachOfAThousandMalformedFrames) {
  start();
  Dealer client = connect();
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    Bytes noise(random() % 64);
    for (auto& byte : noise) byte = static_cast<std::uint8_t>(random());
    client.send(noise);
  }
  for (int i = 0; i < 1000; ++i) {
    json reply = client.receive();
    ASSERT_EQ(reply["ok"], false) << reply;
    ASSERT_FALSE(reply["error"]["message"].get<std::string>().empty());
  }
  EXPECT_EQ(gateway_->counters().malformed, 1000u);
  client.send(hello(1, "still there"));
  EXPECT_EQ(client.receive()["client"], "still there");
}

TEST_F(GatewayTest, RefusesAMessageOfSeveralFrames) {
  start();
  Dealer client = connect();
  client.send_frames({"", "as REQ sends it", "and more"});
  json reply = client.receive();
  EXPECT_EQ(reply["ok"], false);
  EXPECT_NE(reply["error"]["message"].get<std::string>().find("found 3"), std::string::npos);
}

TEST_F(GatewayTest, RefusesAnEmptyFrame) {
  start();
  Dealer client = connect();
  client.send_frames({""});
  EXPECT_EQ(client.receive()["error"]["code"], "INVALID_ARGUMENT");
}

TEST_F(GatewayTest, BadRequestIsAnsweredUnderItsId) {
  start();
  Dealer client = connect();
  client.send(request(77, "hello", {{"typo", 1}}));
  EXPECT_EQ(client.receive()["id"], 77);
}

TEST_F(GatewayTest, SinkThatThrowsCostsAnErrorReply) {
  start();
  Dealer client = connect();
  std::uint64_t id = 0;
  for (const char* words : {"throw", "throw an int"}) {
    client.send(hello(++id, words));
    json reply = client.receive();
    EXPECT_EQ(reply["id"], id);
    EXPECT_EQ(reply["error"]["code"], "INTERNAL");
  }
  EXPECT_EQ(gateway_->counters().sink_failures, 2u);
  client.send(hello(9, "alive"));
  EXPECT_EQ(client.receive()["client"], "alive");
}

// -- clients that come, go and stall -------------------------------------------------------------

TEST_F(GatewayTest, SameIdentityTakesOver) {
  start();
  auto first = std::make_unique<Dealer>(connect("me"));
  first->send(hello(1, "first"));
  EXPECT_EQ(first->receive()["client"], "first");
  Dealer second = connect("me");  // while the first connection still stands
  second.send(hello(2, "second"));
  EXPECT_EQ(second.receive()["client"], "second");
  gateway_->send("me", {{"event", "for the newest"}});
  EXPECT_EQ(second.receive()["event"], "for the newest");
}

// libzmq aborted its process at the second of its heartbeats after that, 20 s later.
TEST_F(GatewayTest, LivesOnWhenAConnectionThatLostItsIdentityWritesAndHangsUp) {
  start();
  auto first = std::make_unique<Dealer>(connect("me"));
  first->send(hello(1, "first"));
  EXPECT_EQ(first->receive()["client"], "first");
  Dealer second = connect("me");
  second.send(hello(2, "second"));
  EXPECT_EQ(second.receive()["client"], "second");
  first->send(hello(3, "first again"));
  std::this_thread::sleep_for(200ms);  // until it is written
  first.reset();
  std::this_thread::sleep_for(21s);
  second.send(hello(4, "alive"));
  EXPECT_EQ(second.receive()["client"], "alive");
}

/// Speaks ZMTP 3.1 itself; then sends `bytes` and resets the connection.
bool burst_and_hang_up(std::uint16_t port, std::string_view identity, const std::string& bytes) {
  using namespace std::string_literals;
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto text = [](char length, std::string_view words) { return length + std::string(words); };
  const auto property = [&](char length, std::string_view name, std::string_view value) {
    return text(length, name) + "\0\0\0"s + static_cast<char>(value.size()) + std::string(value);
  };
  const std::string greeting =
      "\xff"s + std::string(8, '\0') + "\x7f\x03\x01NULL"s + std::string(48, '\0');
  const std::string ready =
      text(5, "READY") + property(11, "Socket-Type", "DEALER") + property(8, "Identity", identity);
  const std::string all = greeting + '\4' + static_cast<char>(ready.size()) + ready;
  std::array<char, 256> heard{};
  bool good = ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
              ::send(fd, all.data(), all.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(all.size());
  for (std::size_t got = 0; good && got <= 64;) {  // its greeting, and some of its READY
    const ssize_t more = ::recv(fd, heard.data(), heard.size(), 0);
    good = more > 0;
    got += static_cast<std::size_t>(std::max<ssize_t>(more, 0));
  }
  good = good && ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0;
  const linger at_once{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(fd);
  return good;
}

// libzmq aborted its process when it still had a PING to answer of a connection that it had not
// read from for a while, since there was no room for what came before, and that had hung up.
TEST_F(GatewayTest, LivesOnWhenManyRequestsAndAPingAreSentByOneThatHangsUp) {
  using namespace std::string_literals;
  start();
  const std::string at = endpoint();
  const auto port = static_cast<std::uint16_t>(std::stoi(at.substr(at.rfind(':') + 1)));
  std::string bytes;
  for (int i = 0; i < 200; ++i) bytes += "\0\1x"s;
  for (int i = 0; i < 3; ++i) bytes += "\4\7\4PING\0\0"s;
  for (int i = 0; i < 500; ++i)
    ASSERT_TRUE(burst_and_hang_up(port, "burst " + std::to_string(i), bytes)) << "after " << i;
  Dealer client = connect();
  client.send(hello(1, "alive"));
  EXPECT_EQ(client.receive()["client"], "alive");
  EXPECT_TRUE(eventually([&] { return gateway_->counters().connections == 1; }));
}

TEST_F(GatewayTest, CountsWhatIsSentToNobody) {
  start();
  gateway_->send("nobody", {{"event", "lost"}});
  EXPECT_TRUE(eventually([&] { return gateway_->counters().unroutable == 1; }));
}

TEST_F(GatewayTest, SlowClientLosesItsOwnMessagesOnly) {
  start();
  Dealer slow(context_, endpoint(), "slow", 1);
  slow.send(hello(1, "slow"));
  slow.receive();
  // Far beyond its budget of 1 MiB plus what the sockets' kernel buffers swallow.
  json large = {{"event", "large"}, {"padding", std::string(256 << 10, 'x')}};
  bool dropped = eventually([&] {
    gateway_->send("slow", large);
    return gateway_->counters().overflowed > 0;
  });
  EXPECT_TRUE(dropped);
  Dealer other = connect();
  other.send(hello(2, "other"));
  EXPECT_EQ(other.receive()["client"], "other");
}

TEST_F(GatewayTest, MessageLargerThanTheBudgetPassesWhenNothingWaits) {
  start();
  Dealer client = connect("reader");
  client.send(hello(1, ""));
  client.receive();
  gateway_->send("reader", {{"padding", std::string(3 << 20, 'x')}});
  EXPECT_EQ(client.receive()["padding"].get<std::string>().size(), 3u << 20);
}

TEST_F(GatewayTest, StopsWithinASecondEvenWithAStalledClient) {
  start();
  Dealer slow(context_, endpoint(), "slow", 1);
  slow.send(hello(1, ""));
  slow.receive();
  json large = {{"padding", std::string(256 << 10, 'x')}};
  eventually([&] {
    gateway_->send("slow", large);
    return gateway_->counters().overflowed > 0;
  });
  auto before = std::chrono::steady_clock::now();
  gateway_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 1s);
}

// -- binding -------------------------------------------------------------------------------------

TEST_F(GatewayTest, PortInUseIsAnErrorThatNamesIt) {
  start();
  Error error = start_error({endpoint()});
  EXPECT_EQ(error.code, ErrorCode::kAlreadyExists);
  EXPECT_NE(error.message.find("request.bind: cannot bind " + endpoint()), std::string::npos)
      << error.message;
}

TEST_F(GatewayTest, PortIsFreeAgainAfterTheStop) {
  start();
  std::string same = endpoint();
  {
    Dealer client = connect();
    client.send(hello(1, ""));
    client.receive();
    gateway_.reset();
  }
  started_ = {};
  started_future_ = started_.get_future().share();
  start(same);
  Dealer client = connect();
  client.send(hello(2, "again"));
  EXPECT_EQ(client.receive()["client"], "again");
}

TEST(GatewayBind, NonsenseIsRefused) {
  EXPECT_EQ(start_error({}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(start_error({"tcp:/127.0.0.1:1"}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(start_error({"udp://127.0.0.1:1"}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(start_error({"tcp://192.0.2.1:5555"}).code, ErrorCode::kInvalidArgument);
}

TEST_F(GatewayTest, IpcSocketIsServedAndKeptFromASecondService) {
  Folder folder;
  start("ipc://" + folder / "socket");
  EXPECT_EQ(start_error({endpoint()}).code, ErrorCode::kAlreadyExists);
  Dealer client = connect();
  client.send(hello(1, "local"));
  EXPECT_EQ(client.receive()["client"], "local");
}

TEST_F(GatewayTest, StaleIpcSocketIsReplaced) {
  Folder folder;
  std::string path = folder / "socket";
  int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(fd);  // as after a crash: the file stays, nobody listens
  start("ipc://" + path);
  Dealer client = connect();
  client.send(hello(1, "fresh"));
  EXPECT_EQ(client.receive()["client"], "fresh");
}

TEST(GatewayBind, FileThatIsNoSocketIsLeftAlone) {
  Folder folder;
  std::ofstream(folder / "notes") << "mine";
  EXPECT_EQ(start_error({"ipc://" + folder / "notes"}).code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(folder / "notes"));
}

TEST(GatewayBind, MissingFolderAndLongPathAreSaid) {
  Folder folder;
  EXPECT_EQ(start_error({"ipc://" + folder / "no/socket"}).code, ErrorCode::kNotFound);
  Error error = start_error({"ipc://" + folder / std::string(120, 'x')});
  EXPECT_NE(error.message.find("at most 107"), std::string::npos) << error.message;
}

TEST(Gateway, AFloodIsPassedOnNoFasterThanItIsDealtWith) {
  constexpr std::uint64_t kFlood = 20'000;
  std::mutex mutex;
  std::vector<Request> held;
  Gateway::Setup setup;
  setup.bind = {"tcp://127.0.0.1:*"};
  setup.max_client_requests = kFlood;
  setup.sink = [&](ClientId, Request request) {
    std::lock_guard lock(mutex);
    held.push_back(std::move(request));
  };
  auto gateway = Gateway::start(std::move(setup));
  ASSERT_TRUE(gateway) << gateway.error().message;
  zmq::context_t context;
  Dealer client(context, (*gateway)->endpoints().at(0));
  std::thread sender([&] {
    for (std::uint64_t id = 1; id <= kFlood; ++id) client.send(hello(id, "flood"));
  });
  const auto taken = [&] { return (*gateway)->counters().requests; };
  EXPECT_TRUE(eventually([&] { return taken() >= Turns::Limits().client_under_way; }));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(taken(), Turns::Limits().client_under_way);
  EXPECT_TRUE(eventually([&] {
    std::vector<Request> done;
    std::lock_guard lock(mutex);
    done.swap(held);
    return taken() == kFlood;
  }));
  sender.join();
  std::lock_guard lock(mutex);
  held.clear();
}

}  // namespace
}  // namespace penstock::test
