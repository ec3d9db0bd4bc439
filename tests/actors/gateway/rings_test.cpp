// Rings of shared memory beside the request socket: clients that keep to them, and some that do
// not.
#include "actors/gateway/rings.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <random>
#include <thread>
#include <zmq.hpp>

#include "actors/gateway/gateway.hpp"
#include "actors/protocol/reply.hpp"
#include "client/cpp/descriptors.hpp"
#include "client/cpp/ring.hpp"
#include "tests/actors/protocol/sample_requests.hpp"
#include "tests/eventually.hpp"

namespace penstock::test {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;
constexpr auto kPatience = 20s;  // a failing test waits so long; a passing one does not
constexpr std::size_t kRingBytes = 16u << 10;
constexpr std::size_t kLong = kRingBytes;  // of a message that does not go by the ring

json hello(std::uint64_t id, const std::string& words) {
  return request(id, "hello", {{"client", words}});
}

/// A client by both ways, written as docs/protocol.md says it.
class Both {
 public:
  Both(zmq::context_t& context, const std::string& endpoint, const std::string& identity)
      : socket_(context, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::routing_id, identity);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.connect(endpoint);
  }
  void by_socket(const json& message, std::uint64_t number = 0) {
    const auto bytes = json::to_msgpack(message);
    socket_.send(zmq::buffer(bytes), number ? zmq::send_flags::sndmore : zmq::send_flags::none);
    if (number) socket_.send(zmq::buffer(&number, sizeof number), zmq::send_flags::none);
  }
  /// Where its ring is, as the reply to hello says it.
  json ask_for_ring() {
    by_socket(request(1, "hello", {{"client", "ring"}, {"ring", kRingVersion}}));
    return receive()["ring"];
  }
  void take_ring(const json& offer) {
    ring_ = std::make_unique<client::Ring>(offer["socket"].get<std::string>(),
                                           offer["token"].get<std::uint64_t>());
    const auto number = ring_->announce();
    ASSERT_EQ(number, 1u);
    socket_.send(zmq::message_t(), zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(&*number, sizeof *number), zmq::send_flags::none);
  }
  bool by_ring(const json& message) {
    return ring_->send(json::to_msgpack(message)) == client::Ring::Sent::kSent;
  }
  client::Ring& ring() { return *ring_; }
  void die() { ring_.reset(); }

  /// What comes next, by either way; "nothing arrived".
  json receive() {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      json got = "nothing arrived";
      const auto take = [&got](std::span<const std::uint8_t> bytes) {
        got = json::from_msgpack(bytes);
      };
      if (ring_ && ring_->receive(1, take) == 1) return got;
      zmq::message_t message;
      if (!socket_.recv(message, zmq::recv_flags::dontwait)) {
        if (!ring_ || ring_->sleep()) wait();
        continue;
      }
      const std::span bytes(message.data<std::uint8_t>(), message.size());
      if (!message.more()) return json::from_msgpack(bytes);
      zmq::message_t number;
      (void)socket_.recv(number);
      std::uint64_t place = 0;
      std::memcpy(&place, number.data(), sizeof place);
      if (ring_)
        ring_->came_by_socket(place, bytes);
      else if (!bytes.empty())
        return json::from_msgpack(bytes);
    }
    return "nothing arrived";
  }
  /// The service has ended the ring.
  bool is_cut() {
    return eventually([this] { return !ring_->serve_bell(); });
  }

 private:
  void wait() {
    std::vector<zmq::pollitem_t> items{{socket_.handle(), 0, ZMQ_POLLIN, 0}};
    if (ring_) items.push_back({nullptr, ring_->fd(), ZMQ_POLLIN, 0});
    zmq::poll(items.data(), items.size(), 1000ms);
    if (ring_) ring_->awake();
    if (ring_ && items.back().revents) (void)ring_->serve_bell();
  }

  zmq::socket_t socket_;
  std::unique_ptr<client::Ring> ring_;
};

/// Notes what the gateway's thread lets it do.
class NotingWork final : public SideWork {
 public:
  void begin(std::function<void()>) override { begun = true; }
  bool work(bool awake) override {
    last_awake = awake;
    worked_awake = worked_awake || awake;
    return false;
  }
  bool waiting() const override { return false; }
  std::atomic<bool> begun{false}, last_awake{false}, worked_awake{false};
};

class RingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/rings-test-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    auto descriptors = DescriptorSocket::start(folder_ / "fd");
    ASSERT_TRUE(descriptors) << descriptors.error().message;
    descriptors_ = std::move(*descriptors);
    Gateway::Setup setup;
    setup.bind = {"tcp://127.0.0.1:*"};
    setup.max_unsent_bytes = 1 << 20;
    setup.rings = 2;
    setup.ring_bytes = kRingBytes;
    setup.descriptors = descriptors_;
    setup.side_work = work_;
    setup.sink = [this](const ClientId& client, const Request& request) { echo(client, request); };
    auto started = Gateway::start(std::move(setup));
    ASSERT_TRUE(started) << started.error().message;
    gateway_ = std::move(*started);
    started_.set_value(gateway_.get());
  }
  // The gateway goes first, and while it goes its thread may still be in echo().
  void TearDown() override { std::filesystem::remove_all(folder_); }
  /// Says back what hello says; "long" makes it a long answer.
  void echo(const ClientId& client, const Request& request) {
    Gateway& gateway = *started_future_.get();
    const auto& hello = std::get<HelloRequest>(request.body);
    json body{{"client", hello.client}};
    if (hello.ring_token != 0)
      body["ring"] = {{"socket", descriptors_->path().string()}, {"token", hello.ring_token}};
    if (hello.client == "long") body["more"] = std::string(kLong, 'x');
    gateway.send(client, ok_reply(request.id, std::move(body)));
  }
  Both connect(const std::string& identity) {
    return {context_, gateway_->endpoints().front(), identity};
  }
  /// With a ring.
  Both connect_by_ring(const std::string& identity) {
    Both client = connect(identity);
    client.take_ring(client.ask_for_ring());
    return client;
  }
  std::size_t rings() const { return gateway_->counters().rings; }

  std::filesystem::path folder_;
  zmq::context_t context_;
  std::shared_ptr<DescriptorSocket> descriptors_;
  const std::shared_ptr<NotingWork> work_ = std::make_shared<NotingWork>();
  std::promise<Gateway*> started_;
  std::shared_future<Gateway*> started_future_ = started_.get_future().share();
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(RingsTest, ARequestByTheRingIsAnsweredByTheRing) {
  Both client = connect_by_ring("a");
  for (std::uint64_t id = 10; id < 1000; ++id) {
    ASSERT_TRUE(client.by_ring(hello(id, "again")));
    ASSERT_EQ(client.receive(), ok_reply(id, {{"client", "again"}}));
    if (id % 100 == 0) std::this_thread::sleep_for(1ms);  // both fall asleep
  }
  const auto counters = gateway_->counters();
  EXPECT_EQ(counters.ring_requests, 990u);
  EXPECT_EQ(counters.ring_sent, 990u);
  EXPECT_EQ(counters.rings, 1u);
}

TEST_F(RingsTest, SideWorkIsDoneWhileTheNextRequestIsLookedForAndTakenBackBeforeTheThreadSleeps) {
  Both client = connect_by_ring("a");
  EXPECT_FALSE(work_->worked_awake);  // so far all came by ZeroMQ
  std::uint64_t id = 10;
  EXPECT_TRUE(eventually([&] {  // a thread that is not let run misses the time after one of them
    EXPECT_TRUE(client.by_ring(hello(id++, "again")));
    client.receive();
    return work_->worked_awake.load();
  }));
  EXPECT_TRUE(work_->begun);
  EXPECT_TRUE(eventually([&] { return !work_->last_awake; }));
}

TEST_F(RingsTest, WhatIsMalformedIsAnsweredAsByZeroMQ) {
  Both client = connect_by_ring("a");
  ASSERT_TRUE(client.by_ring({{"v", 1}, {"id", 9}, {"op", "fly"}}));
  const json by_ring = client.receive();
  const auto number = client.ring().announce();
  ASSERT_TRUE(number);
  client.by_socket({{"v", 1}, {"id", 9}, {"op", "fly"}}, *number);
  EXPECT_EQ(by_ring, client.receive());
  EXPECT_EQ(by_ring["error"]["code"], "INVALID_ARGUMENT");
}

TEST_F(RingsTest, LongMessagesGoByZeroMQInTheirPlace) {
  Both client = connect_by_ring("a");
  for (std::uint64_t id = 10; id < 40; id += 3) {
    ASSERT_TRUE(client.by_ring(hello(id, "long")));  // a long answer
    const auto number = client.ring().announce();    // a request that goes by ZeroMQ
    ASSERT_TRUE(number);
    ASSERT_TRUE(client.by_ring(hello(id + 2, "behind it")));
    std::this_thread::sleep_for(1ms);  // so that the gateway waits for it
    client.by_socket(hello(id + 1, "long"), *number);
  }
  for (std::uint64_t id = 10; id < 40; ++id) ASSERT_EQ(client.receive()["id"], id);
}

TEST_F(RingsTest, AClientWithoutARingHearsEverythingByZeroMQ) {
  Both client = connect("a");
  EXPECT_TRUE(client.ask_for_ring().contains("token"));
  client.by_socket(hello(2, "it was not taken up"));
  EXPECT_EQ(client.receive()["id"], 2);
}

TEST_F(RingsTest, ThereAreNoMoreThanAsManyAsItMayHave) {
  Both a = connect_by_ring("a");
  Both b = connect_by_ring("b");
  Both c = connect("c");
  EXPECT_TRUE(c.ask_for_ring().is_null());
  a.die();
  ASSERT_TRUE(eventually([&] { return rings() == 1; })) << "its end is seen";
  EXPECT_TRUE(c.ask_for_ring().contains("token"));
  EXPECT_EQ(rings(), 2u);
}

TEST_F(RingsTest, ThoseThatAreNeverFetchedAreTakenBack) {
  Both client = connect("a");
  const std::size_t many = DescriptorSocket::Options().kept + 10;
  for (std::size_t i = 0; i < many; ++i) ASSERT_TRUE(client.ask_for_ring().contains("token")) << i;
  Both other = connect_by_ring("b");
  ASSERT_TRUE(other.by_ring(hello(5, "it works")));
  EXPECT_EQ(other.receive()["id"], 5);
}

// Clients that always have more would use up every turn if it began with them each time.
TEST_F(RingsTest, TakeTurns) {
  constexpr std::size_t kRings = 6, kEach = 100, kTurn = 256;
  Audit audit(10);
  Rings rings({.most = kRings, .bytes = kRingBytes},
              {.by_socket = [](const auto&, auto, auto) {},
               .slow = [](const auto&) {},
               .wake = [] {},
               .broken = [](const auto&) {}},
              audit);
  std::vector<std::unique_ptr<client::Ring>> clients;
  for (std::size_t i = 0; i < kRings; ++i) {
    const auto token = rings.hand_out(std::to_string(i), {}, *descriptors_);
    ASSERT_TRUE(token) << token.error().message;
    clients.push_back(std::make_unique<client::Ring>(descriptors_->path().string(), *token));
    for (std::size_t k = 0; k < kEach; ++k)
      ASSERT_EQ(clients.back()->send(std::vector<std::uint8_t>{1}), client::Ring::Sent::kSent);
  }
  std::map<std::string, std::size_t> taken;
  for (int turn = 0; turn < 2; ++turn)
    rings.receive(kTurn,
                  [&](const std::string& client, const auto&, const auto&) { ++taken[client]; });
  EXPECT_EQ(taken.size(), kRings);
}

TEST_F(RingsTest, AnotherRingTakesThePlaceOfTheFirst) {
  Both client = connect_by_ring("a");
  client.by_socket(request(2, "hello", {{"ring", kRingVersion}}));
  const json reply = client.receive();  // still by the first, or by ZeroMQ behind its end
  EXPECT_TRUE(reply["ring"].contains("token")) << reply;
  EXPECT_TRUE(client.is_cut());
  EXPECT_EQ(rings(), 1u);
}

TEST_F(RingsTest, ARingOfAClientThatDiedIsEnded) {
  Both client = connect_by_ring("a");
  gateway_->end_ring("a");
  EXPECT_TRUE(client.is_cut());
  client.die();
  client.by_socket(hello(5, "by ZeroMQ"));
  EXPECT_EQ(client.receive()["id"], 5);
}

// Whatever the gateway's thread does just then, it must not sleep on it.
TEST_F(RingsTest, AreEndedAtAnyMoment) {
  Both client = connect("a");
  for (std::uint64_t round = 0; round < 200; ++round) {
    client.take_ring(client.ask_for_ring());
    ASSERT_TRUE(client.by_ring(hello(5, "last words")));
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(round);
    while (std::chrono::steady_clock::now() < until) {
    }
    gateway_->end_ring("a");
    ASSERT_TRUE(client.is_cut()) << "round " << round;
    client.die();
    client.by_socket(hello(6, "by ZeroMQ"));
    for (json heard; heard["id"] != 6;) {
      heard = client.receive();
      ASSERT_TRUE(heard.is_object()) << "round " << round << ": " << heard;
    }
  }
}

TEST_F(RingsTest, AConnectionThatTakesOverIsAnsweredItself) {
  Both hung = connect_by_ring("a");
  ASSERT_TRUE(hung.by_ring(hello(5, "it works")));
  ASSERT_EQ(hung.receive()["id"], 5);
  Both client = connect("a");
  client.by_socket(hello(6, "under the same identity"));
  EXPECT_EQ(client.receive()["id"], 6);
  EXPECT_TRUE(hung.is_cut());
}

TEST_F(RingsTest, AClientThatDoesNotReadIsCut) {
  Both client = connect_by_ring("a");
  Both other = connect_by_ring("b");
  const json event{{"event", "notify"}, {"data", std::string(2000, 'x')}};
  for (int i = 0; i < 1000 && gateway_->counters().overflowed == 0 && rings() == 2; ++i)
    gateway_->send("a", event);
  EXPECT_TRUE(client.is_cut());
  ASSERT_TRUE(other.by_ring(hello(7, "others go on")));
  EXPECT_EQ(other.receive()["id"], 7);
}

TEST_F(RingsTest, AClientThatReadsLateLosesNothing) {
  Both client = connect_by_ring("a");
  for (int i = 0; i < 200; ++i)
    gateway_->send("a", {{"event", i}, {"data", std::string(2000, 'x')}});
  for (int i = 0; i < 200; ++i) ASSERT_EQ(client.receive()["event"], i);
}

// -- clients that lie ----------------------------------------------------------------------------

/// Fetches a ring and has its memory for itself.
struct Liar {
  explicit Liar(const json& offer)
      : parts(client::take_descriptors(offer["socket"].get<std::string>(),
                                       offer["token"].get<std::uint64_t>())),
        bell(std::move(parts.at(1))) {
    auto opened = RingSegment::open(parts.at(0).get());
    if (opened) segment.emplace(std::move(*opened));
  }
  std::vector<RingDescriptor> parts;
  RingBell bell;
  std::optional<RingSegment> segment;
};

TEST_F(RingsTest, ABrokenRingEndsAndNothingElse) {
  Both good = connect_by_ring("good");
  Both bad = connect("bad");
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    Liar liar(bad.ask_for_ring());
    ASSERT_TRUE(liar.segment);
    RingHeader& header = liar.segment->header();
    auto* words = static_cast<std::uint64_t*>(static_cast<void*>(liar.segment->requests().data()));
    for (std::size_t i = 0; i < kRingBytes / 8; ++i)
      words[i] = random() & (random() % 2 ? 0x00000003'000000ff : ~std::uint64_t{0});
    header.answers.tail = random();
    header.requests.head = round % 2 ? kRingBytes + 8 : random();
    liar.bell.ring();
    ASSERT_TRUE(eventually([&] { return !liar.bell.quiet(); })) << "round " << round;
    ASSERT_TRUE(good.by_ring(hello(100, "good")));
    ASSERT_EQ(good.receive()["client"], "good");
    bad.by_socket(hello(101, "bad"));
    ASSERT_EQ(bad.receive()["id"], 101) << "it goes on by ZeroMQ";
  }
  EXPECT_GE(gateway_->counters().refused, 1u);
}

TEST_F(RingsTest, ANumberThatIsNotNextBreaksTheRing) {
  Both client = connect_by_ring("a");
  client.by_socket(hello(5, "it says nowhere where this belongs"), 7);
  EXPECT_TRUE(client.is_cut());
  client.die();
  EXPECT_EQ(client.receive()["id"], 5);
}

TEST_F(RingsTest, ABellThatNeverStopsStopsNobody) {
  Both client = connect_by_ring("a");
  Both loud = connect("loud");
  Liar liar(loud.ask_for_ring());
  std::atomic<bool> enough{false};
  std::thread other([&] {
    while (!enough) liar.bell.ring();
  });
  for (std::uint64_t id = 10; id < 100; ++id) {
    ASSERT_TRUE(client.by_ring(hello(id, "again")));
    ASSERT_EQ(client.receive()["id"], id);
  }
  enough = true;
  other.join();
}

}  // namespace
}  // namespace penstock::test
