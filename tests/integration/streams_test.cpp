// Transfers that stay open, between real services.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "tests/integration/nodes.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;
using State = client::TransferResult::State;
using Remote = client::TransferResult::Remote;

constexpr std::uint64_t kPage = 64 << 10;
constexpr std::uint32_t kLayers = 8;
constexpr std::uint32_t kPagesOfLayer = 64;
constexpr std::uint64_t kLayerBytes = kPage * kPagesOfLayer;
constexpr std::uint64_t kBytes = kLayers * kLayerBytes;

/// What a subscription to "notify" and "transfers" heard, in order.
class Heard {
 public:
  explicit Heard(client::Client& client)
      : subscription_(client.subscribe({"notify", "transfers"}, [this](const client::Event& event) {
          std::lock_guard lock(mutex_);
          events_.push_back(event);
          more_.notify_all();
        })) {}
  ~Heard() { subscription_.stop(); }
  /// The next event of this kind; older ones of others are dropped.
  template <class Body>
  std::optional<Body> next(std::chrono::milliseconds patience = 20s) {
    std::unique_lock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + patience;
    for (;;) {
      while (!events_.empty()) {
        const client::Event event = std::move(events_.front());
        events_.pop_front();
        if (const auto* body = std::get_if<Body>(&event.body)) return *body;
      }
      if (more_.wait_until(lock, until) == std::cv_status::timeout) return std::nullopt;
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<client::Event> events_;
  client::Subscription subscription_;
};

template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
    return "accepted";
  } catch (const client::Error& error) {
    return error.code();
  }
}

/// Layer after layer of "src" on a goes to "dst" on b, its pages in another order.
struct Layers {
  Layers() {
    for (std::uint32_t page = 0; page < kPagesOfLayer; ++page) {
      source.push_back(page);
      destination.push_back((page * 37 + 11) % kPagesOfLayer);
    }
  }
  client::Part part(std::uint32_t layer, std::string notify = "") const {
    return {.layout = client::Pages{.page_bytes = kPage,
                                    .source_pages = source,
                                    .destination_pages = destination,
                                    .bases = {{layer * kLayerBytes, layer * kLayerBytes}}},
            .notify = std::move(notify)};
  }
  bool arrived(client::Client& from, client::Client& to, std::uint32_t layer) const {
    const auto offset = layer * kLayerBytes;
    return from.digest("src", kPage, source, offset) ==
           to.digest("dst", kPage, destination, offset);
  }
  std::vector<std::uint32_t> source, destination;
};

void prepare(Nodes& nodes) {
  nodes["a"].allocate("src", kBytes, "", client::MapMemory::kNo).detach();
  nodes["b"].allocate("dst", kBytes, "", client::MapMemory::kNo).detach();
  nodes["a"].fill("src", 1);
  nodes["b"].fill("dst", 2);
}

client::StreamSpec to_b(std::uint32_t deadline_ms = 60000) {
  return {.region = "src", .target = {"b", "dst"}, .deadline_ms = deadline_ms};
}

class Streams : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes = new Nodes({"a", "b"}, {"devices.gpus=none"});
    prepare(*nodes);
  }
  static void TearDownTestSuite() { delete std::exchange(nodes, nullptr); }
  void SetUp() override {
    a().fill("src", ++seed);
    b().fill("dst", ++seed);
  }
  static client::Client& a() { return (*nodes)["a"]; }
  static client::Client& b() { return (*nodes)["b"]; }
  static inline Nodes* nodes = nullptr;
  static inline std::uint64_t seed = 10;
  Layers layers;
};

TEST_F(Streams, EachPartIsToldWhenItsBytesAreThereAndTheStreamEndsOnce) {
  Heard at_b(b());
  Heard at_a(a());
  auto spec = to_b();
  spec.notify = "request 81";
  const auto stream = a().stream(spec);
  std::vector<client::Transfer> parts;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    parts.push_back(stream.append(layers.part(layer, layer == 3 ? "the fourth" : "")));
    if (layer % 2 == 1) {  // two under way
      std::set<std::uint32_t> heard;
      for (int i = 0; i < 2; ++i) {
        const auto told = at_b.next<client::Notification>();
        ASSERT_TRUE(told);
        EXPECT_EQ(told->stream, stream.id());
        EXPECT_EQ(told->transfer, parts.at(told->part).id());
        EXPECT_EQ(told->data, told->part == 3 ? "the fourth" : "request 81");
        EXPECT_EQ(told->bytes, kLayerBytes);
        EXPECT_TRUE(layers.arrived(a(), b(), told->part));
        heard.insert(told->part);
      }
      EXPECT_EQ(heard, (std::set<std::uint32_t>{layer - 1, layer}));
    }
  }
  const auto open = json::parse(a().transfers({stream.id()}).front().json);
  EXPECT_EQ(open.at("state"), "open");
  EXPECT_EQ(open.at("parts"), kLayers);
  EXPECT_EQ(json::parse(a().status()).at("streams").at("open"), 1);
  EXPECT_FALSE(stream.transfer().ended());

  stream.close();
  const auto result = stream.wait();
  EXPECT_EQ(result.state, State::kDone) << result.error_message;
  EXPECT_EQ(result.id, stream.id());
  EXPECT_EQ(result.parts, kLayers);
  EXPECT_EQ(result.parts_done, kLayers);
  EXPECT_EQ(result.bytes, kBytes);
  std::set<std::string> paths;  // whether packing pays is measured meanwhile
  for (const auto& part : parts) paths.insert(part.wait().path);
  EXPECT_EQ(result.path, paths.size() == 1 ? *paths.begin() : "mixed");
  // The parts' ends come first, each with its stream, and the stream's once.
  std::uint32_t ended = 0;
  while (const auto end = at_a.next<client::TransferResult>(ended <= kLayers ? 20000ms : 100ms)) {
    if (end->id == stream.id()) {
      EXPECT_EQ(ended, kLayers);
    } else {
      EXPECT_EQ(end->stream, stream.id());
      EXPECT_EQ(end->id, parts.at(end->part).id());
    }
    ++ended;
  }
  EXPECT_EQ(ended, kLayers + 1);
  EXPECT_EQ(json::parse(a().status()).at("streams").at("open"), 0);

  const auto trace = a().trace(stream.id());
  ASSERT_EQ(trace.stages.size(), 4u);
  EXPECT_EQ(trace.stages[1].name, "open");
  EXPECT_EQ(trace.stages[2].name, "closing");
  EXPECT_GT(a().trace(parts[0].id()).stages.size(), 2u);
}

TEST_F(Streams, AfterACancelNothingOfItLandsAnyMore) {
  for (int round = 0; round < 4; ++round) {
    auto stream = a().stream(to_b());
    std::vector<client::Transfer> parts;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer)
      parts.push_back(stream.append(layers.part(layer)));
    parts.front().id();
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * round));
    stream.cancel();
    const auto result = stream.wait();
    ASSERT_EQ(result.state, State::kCancelled);
    ASSERT_EQ(result.remote, Remote::kQuiet);
    for (const auto& part : parts) ASSERT_TRUE(part.ended()) << "the stream ends last";
    b().fill("dst", 100 + round);
    const auto before = b().digest("dst", kPage);
    std::this_thread::sleep_for(30ms);
    ASSERT_EQ(before, b().digest("dst", kPage)) << "round " << round;
    EXPECT_EQ(stream.append(layers.part(0)).wait().error_code, "CANCELLED");
  }
}

TEST_F(Streams, APartThatCannotBeIsTheEndOfTheStream) {
  auto stream = a().stream(to_b());
  const auto good = stream.append(layers.part(0));
  EXPECT_EQ(good.wait().state, State::kDone);
  const auto under_way = stream.append(layers.part(1));
  client::Part beyond = layers.part(2);
  std::get<client::Pages>(beyond.layout).bases = {{kBytes, 0}};
  const auto refused = stream.append(beyond).wait();
  EXPECT_EQ(refused.state, State::kRefused);
  EXPECT_EQ(refused.error_code, "OUT_OF_RANGE");
  const auto late = stream.append(layers.part(3)).wait();
  EXPECT_EQ(late.state, State::kRefused);
  EXPECT_EQ(late.error_code, "OUT_OF_RANGE") << late.error_message;
  stream.close();
  const auto result = stream.wait();
  EXPECT_EQ(result.state, State::kFailed);
  EXPECT_EQ(result.error_code, "OUT_OF_RANGE");
  EXPECT_THAT(result.error_message, HasSubstr("part 2 was refused"));
  EXPECT_EQ(result.parts, 2u);
  EXPECT_GE(result.parts_done, 1u);
  EXPECT_TRUE(under_way.ended());
}

TEST_F(Streams, APartThatFailsAtTheOtherNodeIsTheEndOfTheStream) {
  auto spec = to_b();
  spec.target.region = "none";
  auto stream = a().stream(spec);
  const auto part = stream.append(layers.part(0));
  EXPECT_EQ(part.wait().error_code, "NOT_FOUND");
  const auto result = stream.wait();
  EXPECT_EQ(result.state, State::kFailed);
  EXPECT_EQ(result.error_code, "NOT_FOUND");
  EXPECT_EQ(result.parts_done, 0u);
}

TEST_F(Streams, IsRefusedWhereItCouldNeverGo) {
  auto spec = to_b();
  spec.region = "none";
  EXPECT_EQ(refusal([&] { a().stream(spec); }), "NOT_FOUND");
  spec = to_b();
  spec.target.node = "z";
  EXPECT_EQ(refusal([&] { a().stream(spec); }), "NOT_FOUND");
}

TEST_F(Streams, ThatNobodyClosesEndsAtItsDeadline) {
  auto stream = a().stream(to_b(300));
  const auto part = stream.append(layers.part(0));
  EXPECT_EQ(part.wait().state, State::kDone);
  const auto result = stream.wait();
  EXPECT_EQ(result.state, State::kExpired);
  EXPECT_EQ(result.error_code, "DEADLINE_EXCEEDED");
  EXPECT_EQ(result.parts_done, 1u);
  EXPECT_GE(result.elapsed_us, 300'000u);
  EXPECT_TRUE(layers.arrived(a(), b(), 0));
  EXPECT_EQ(stream.append(layers.part(1)).wait().error_code, "DEADLINE_EXCEEDED");
}

TEST_F(Streams, WhoseHandleIsDroppedIsCancelled) {
  Heard at_a(a());
  const auto id = a().stream(to_b()).id();
  const auto end = at_a.next<client::TransferResult>();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->id, id);
  EXPECT_EQ(end->state, State::kCancelled);
}

TEST_F(Streams, OfAClientThatDiedIsCancelled) {
  Heard at_a(a());
  client::Stream stream;  // goes after its client: nobody is left to cancel it
  {
    client::Client mortal({.endpoint = nodes->endpoint("a"), .lease_ms = 300});
    stream = mortal.stream(to_b());
    EXPECT_EQ(stream.append(layers.part(0)).wait().state, State::kDone);
    EXPECT_EQ(at_a.next<client::TransferResult>()->stream, stream.id());
  }
  const auto end = at_a.next<client::TransferResult>();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->id, stream.id());
  EXPECT_EQ(end->state, State::kCancelled);
}

TEST(StreamsThatLoseTheirNode, EndWithThePartThatFails) {
  Nodes nodes({"a", "b"}, {"devices.gpus=none"});
  prepare(nodes);
  const Layers layers;
  auto stream = nodes["a"].stream(to_b());
  EXPECT_EQ(stream.append(layers.part(0)).wait().state, State::kDone);
  nodes.kill("b");
  const auto part = stream.append(layers.part(1)).wait();
  EXPECT_NE(part.state, State::kDone);
  const auto result = stream.wait();
  EXPECT_EQ(result.state, State::kFailed);
  EXPECT_EQ(result.error_code, part.error_code);
  EXPECT_EQ(result.parts_done, 1u);
}

TEST(StreamsAndADrain, TheOpenOnesGoOnAndNewOnesAreRefused) {
  Nodes nodes({"a", "b"}, {"devices.gpus=none"});
  prepare(nodes);
  const Layers layers;
  auto stream = nodes["a"].stream(to_b());
  EXPECT_EQ(stream.append(layers.part(0)).wait().state, State::kDone);
  nodes["a"].call("drain", R"({"deadline_ms": 30000})");
  for (int i = 0; i < 1000 && !json::parse(nodes["a"].status()).at("draining").get<bool>(); ++i)
    std::this_thread::sleep_for(5ms);
  EXPECT_EQ(refusal([&] { nodes["a"].stream(to_b()); }), "DRAINING");
  std::this_thread::sleep_for(700ms);  // longer than a drain waits with nothing in flight
  EXPECT_TRUE(nodes.process("a").running());
  EXPECT_EQ(stream.append(layers.part(1)).wait().state, State::kDone);
  stream.close();
  EXPECT_EQ(stream.wait().state, State::kDone);
  EXPECT_TRUE(nodes.process("a").wait(20s));
  EXPECT_EQ(nodes.process("a").how_it_ended(), "exited with 0");
}

TEST(StreamsAndADrain, WhatIsOpenAtItsDeadlineIsCancelled) {
  Nodes nodes({"a", "b"}, {"devices.gpus=none"});
  prepare(nodes);
  auto stream = nodes["a"].stream(to_b());
  nodes["a"].call("drain", R"({"deadline_ms": 300})");
  EXPECT_THAT(stream.wait().state, AnyOf(State::kCancelled, State::kLost));
  EXPECT_TRUE(nodes.process("a").wait(20s));
}

}  // namespace
}  // namespace penstock::integration
