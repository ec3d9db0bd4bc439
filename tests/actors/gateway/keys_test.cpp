// Who is let in at the request socket, and what becomes of those who are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>
#include <zmq.hpp>

#include "actors/gateway/gateway.hpp"
#include "actors/gateway/turns.hpp"
#include "actors/protocol/reply.hpp"
#include "tests/actors/protocol/sample_requests.hpp"
#include "tests/eventually.hpp"

namespace penstock::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using namespace std::chrono_literals;
constexpr int kPatienceMs = 20'000;  // a failing test waits so long
constexpr int kSoonMs = 300;         // that nothing comes is seen by waiting so long

struct Client {
  Client(zmq::context_t& context, const std::string& endpoint, const KeyPair* keys,
         const Key* server, const std::string& identity = "", int wait_ms = kPatienceMs)
      : socket(context, zmq::socket_type::dealer) {
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvtimeo, wait_ms);
    socket.set(zmq::sockopt::reconnect_ivl, 20);
    if (!identity.empty()) socket.set(zmq::sockopt::routing_id, identity);
    if (keys != nullptr) {
      const auto bytes = [](const Key& key) { return zmq::buffer(key.data(), key.size()); };
      socket.set(zmq::sockopt::curve_secretkey, bytes(keys->secret_key));
      socket.set(zmq::sockopt::curve_publickey, bytes(keys->public_key));
      socket.set(zmq::sockopt::curve_serverkey, bytes(*server));
    }
    socket.connect(endpoint);
  }
  void send(const json& value) {
    socket.send(zmq::buffer(json::to_msgpack(value)), zmq::send_flags::none);
  }
  json receive() {
    zmq::message_t message;
    if (!socket.recv(message)) return "nothing";
    const auto* data = message.data<std::uint8_t>();
    return json::from_msgpack(data, data + message.size());
  }
  json ask(std::uint64_t id, const char* operation, json fields = json::object()) {
    send(request(id, operation, std::move(fields)));
    return receive();
  }

  zmq::socket_t socket;
};

std::string code_of(const json& reply) {
  return reply.is_object() && reply.value("ok", false) ? "OK"
         : reply.is_object()                           ? reply["error"].value("code", "?")
                                                       : reply.get<std::string>();
}

class Keys : public testing::Test {
 protected:
  void start(std::function<void(Gateway::Setup&)> change = {}) {
    Gateway::Setup setup;
    setup.bind = {"tcp://127.0.0.1:*", "ipc://" + socket_path()};
    setup.keys = server_;
    setup.clients = clients_of("read reader " + z85_of(reader_.public_key) + "\ntransfer worker " +
                               z85_of(worker_.public_key));
    setup.sink = [this](ClientId client, Request request) {
      std::lock_guard lock(mutex_);
      if (ending_) return;
      asked_.push_back({client, request.who, request.role});
      // Kept: the ticket shows the request as under way.
      if (std::holds_alternative<StatusRequest>(request.body)) {
        held_.push_back(std::move(request));
        return;
      }
      gateway_->send(client, ok_reply(request.id));
    };
    setup.gone = [this](const ClientId& client) {
      std::lock_guard lock(mutex_);
      gone_.push_back(client);
    };
    if (change) change(setup);
    std::lock_guard lock(mutex_);
    auto started = Gateway::start(std::move(setup));
    ASSERT_TRUE(started) << started.error().message;
    gateway_ = std::move(*started);
  }
  void TearDown() override {
    {
      std::lock_guard lock(mutex_);
      held_.clear();  // no request outlives the gateway
      ending_ = true;
    }
    gateway_.reset();
    std::filesystem::remove(socket_path());
  }
  static AllowList clients_of(const std::string& text) {
    return AllowList::parse(text, "clients").value();
  }
  static std::string socket_path() {
    return testing::TempDir() + "/keys-" + std::to_string(::getpid()) + ".ipc";
  }
  std::string tcp() const { return gateway_->endpoints().at(0); }
  std::string ipc() const { return gateway_->endpoints().at(1); }
  Client client(const KeyPair& keys, const std::string& identity = "", int wait_ms = kPatienceMs) {
    return {context_, tcp(), &keys, &server_.public_key, identity, wait_ms};
  }
  int connect_plainly() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(tcp().substr(tcp().rfind(':') + 1))));
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  struct Asked {
    ClientId client;
    std::string who;
    Role role;
  };
  const KeyPair server_ = make_key_pair(), reader_ = make_key_pair(), worker_ = make_key_pair();
  zmq::context_t context_;
  std::mutex mutex_;
  std::vector<Asked> asked_;
  std::vector<Request> held_;
  bool ending_ = false;
  std::vector<ClientId> gone_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(Keys, OnTheListLetTheirClientInUnderItsNameAndRole) {
  start();
  auto worker = client(worker_);
  EXPECT_EQ(code_of(worker.ask(1, "hello")), "OK");
  std::lock_guard lock(mutex_);
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].who, "worker");
  EXPECT_EQ(asked_[0].role, Role::kTransfer);
}

TEST_F(Keys, ThatAreMissingUnknownOrForAnotherServiceLetNobodyIn) {
  start();
  const KeyPair stranger = make_key_pair(), elsewhere = make_key_pair();
  Client without(context_, tcp(), nullptr, nullptr, "", kSoonMs);
  Client unknown = client(stranger, "", kSoonMs);
  Client wrong(context_, tcp(), &worker_, &elsewhere.public_key, "", kSoonMs);
  for (Client* each : {&without, &unknown, &wrong}) each->send(request(1, "hello"));
  for (Client* each : {&without, &unknown, &wrong}) EXPECT_EQ(each->receive(), "nothing");
  EXPECT_TRUE(eventually([&] { return gateway_->counters().refused >= 3; }));
  EXPECT_EQ(gateway_->counters().requests, 0u);
  auto good = client(worker_);
  EXPECT_EQ(code_of(good.ask(1, "hello")), "OK");
}

TEST_F(Keys, OfTooSmallARoleAreToldSoAndReachNobody) {
  start();
  auto reader = client(reader_);
  EXPECT_EQ(code_of(reader.ask(1, "hello")), "OK");
  EXPECT_EQ(code_of(reader.ask(2, "nodes")), "OK");
  const json refused = reader.ask(3, "release", {{"name", "kv"}});
  EXPECT_EQ(code_of(refused), "DENIED");
  EXPECT_EQ(refused["id"], 3);
  EXPECT_THAT(refused["error"]["message"], HasSubstr("needs the role transfer, 'reader' has read"));
  auto worker = client(worker_);
  EXPECT_EQ(code_of(worker.ask(1, "release", {{"name", "kv"}})), "OK");
  EXPECT_EQ(code_of(worker.ask(2, "drain")), "DENIED");
  EXPECT_EQ(gateway_->counters().refused, 2u);
}

TEST_F(Keys, AreLookedUpAnewAfterAReload) {
  start();
  auto reader = client(reader_);
  EXPECT_EQ(code_of(reader.ask(1, "release", {{"name", "kv"}})), "DENIED");
  gateway_->allow(clients_of("transfer reader " + z85_of(reader_.public_key)));
  EXPECT_EQ(code_of(reader.ask(2, "release", {{"name", "kv"}})), "OK");
  // Struck off: not even an answer, and the connection is closed.
  gateway_->allow(clients_of("read other " + z85_of(worker_.public_key)));
  reader.socket.set(zmq::sockopt::rcvtimeo, kSoonMs);
  EXPECT_EQ(reader.ask(3, "hello"), "nothing");
  auto again = client(reader_, "", kSoonMs);
  EXPECT_EQ(again.ask(1, "hello"), "nothing");
}

TEST_F(Keys, AreNotAskedForAtAnIpcEndpointWhichIsItsOwnersAlone) {
  start();
  Client local(context_, ipc(), nullptr, nullptr);
  EXPECT_EQ(code_of(local.ask(1, "drain")), "OK");
  struct stat status {};
  ASSERT_EQ(::stat(socket_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 077, 0u) << "others could connect";
}

// The identity of a connection is its client's own word: with another key it is another client.
TEST_F(Keys, AndNotIdentitiesSayWhichClientItIs) {
  start();
  auto worker = client(worker_, "the-same");
  EXPECT_EQ(code_of(worker.ask(1, "hello")), "OK");
  ClientId victim;
  {
    std::lock_guard lock(mutex_);
    victim = asked_.at(0).client;
  }
  auto thief = client(reader_, "the-same");
  EXPECT_EQ(code_of(thief.ask(1, "hello")), "OK");
  {
    std::lock_guard lock(mutex_);
    EXPECT_NE(asked_.at(1).client, victim);
  }
  gateway_->send(victim, {{"event", "for the worker alone"}});
  EXPECT_TRUE(eventually([&] {
    std::lock_guard lock(mutex_);
    return gone_ == std::vector<ClientId>{victim};
  }));
  EXPECT_EQ(code_of(thief.ask(2, "nodes")), "OK");  // the next that it gets is its own
}

TEST_F(Keys, OrNotAConnectionThatNeverSpeaksIsClosed) {
  start();
  const int fd = connect_plainly();
  EXPECT_TRUE(eventually([&] { return gateway_->counters().connections == 1; }));
  EXPECT_TRUE(eventually([&] { return gateway_->counters().connections == 0; }));  // 3 s
  ::close(fd);
}

TEST_F(Keys, OrNotConnectionsAreBounded) {
  start([](Gateway::Setup& setup) { setup.max_connections = 8; });
  auto worker = client(worker_);
  EXPECT_EQ(code_of(worker.ask(1, "hello")), "OK");
  std::vector<zmq::socket_t> idle;
  for (int i = 0; i < 50; ++i) {
    auto& socket = idle.emplace_back(context_, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::reconnect_ivl, -1);
    socket.connect(ipc());
  }
  EXPECT_TRUE(eventually([&] { return gateway_->counters().refused >= 43; }));
  EXPECT_TRUE(eventually([&] { return gateway_->counters().connections <= 8; }));
  EXPECT_EQ(code_of(worker.ask(2, "hello")), "OK");
}

TEST_F(Keys, OrNotAFloodIsRefusedBeyondItsSendersShareWhileOthersAreServed) {
  start([](Gateway::Setup& setup) { setup.max_client_requests = 100; });
  auto flood = client(worker_);
  auto good = client(reader_);
  constexpr int kRequests = 2000;
  for (int i = 0; i < kRequests; ++i) flood.send(request(static_cast<std::uint64_t>(i), "status"));
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(code_of(good.ask(i, "hello")), "OK");
  int refused = 0;  // nothing of the flood ends, so all but its share is refused
  while (refused < kRequests - 100 && code_of(flood.receive()) == "RESOURCE_EXHAUSTED") ++refused;
  EXPECT_EQ(refused, kRequests - 100);
  std::lock_guard lock(mutex_);
  // Under way; the others wait for their turn.
  EXPECT_EQ(held_.size(), Turns::Limits().client_under_way);
}

TEST_F(Keys, OrNotAClientThatDoesNotReadIsCut) {
  start([](Gateway::Setup& setup) { setup.max_unsent_bytes = 1 << 20; });
  Client slow(context_, ipc(), nullptr, nullptr);
  slow.socket.set(zmq::sockopt::rcvhwm, 1);
  EXPECT_EQ(code_of(slow.ask(1, "hello")), "OK");
  ClientId id;
  {
    std::lock_guard lock(mutex_);
    id = asked_.at(0).client;
  }
  const std::string big(1 << 18, 'x');
  EXPECT_TRUE(eventually([&] {
    gateway_->send(id, {{"event", big}});
    return gateway_->counters().overflowed > 0;
  }));
  EXPECT_TRUE(eventually([&] {
    std::lock_guard lock(mutex_);
    return !gone_.empty();
  }));
  EXPECT_EQ(gone_.front(), id);
}

}  // namespace
}  // namespace penstock::test
