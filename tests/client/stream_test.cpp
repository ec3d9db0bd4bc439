// What a client's streams ask, and ask again when an answer was lost.
#include "client/cpp/stream.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "client/cpp/wire.hpp"
#include "tests/client/fake_service.hpp"

namespace penstock::client {
namespace {

using Json = nlohmann::json;

const StreamSpec kSpec{.region = "kv", .target = {"b", "pool", 7}, .notify = "request 81"};
const Part kPart{.layout = Ranges{{{0, 0, 4096}}}};

class ClientStream : public testing::Test {
 protected:
  ClientStream() {
    service_.on("stream", [](const Json&) { return Json{{"ids", {9}}}; });
    service_.on("append", [](const Json& request) {
      return Json{{"ids", {100 + request["part"].get<std::uint64_t>()}}};
    });
    service_.on("close", [](const Json&) { return Json{{"parts", 0}}; });
    service_.on("cancel", [](const Json&) { return Json{{"unknown", Json::array()}}; });
  }
  FakeService service_;
};

TEST_F(ClientStream, AppendsItsPartsInOrderAndSaysHowManyThereAre) {
  Client client(options_for(service_));
  auto stream = client.stream(kSpec);
  EXPECT_EQ(stream.id(), 9u);
  EXPECT_EQ(stream.append(kPart).id(), 100u);
  Part with_word = kPart;
  with_word.notify = "layer 1";
  EXPECT_EQ(stream.append(with_word).id(), 101u);
  stream.close();
  stream.close();
  ASSERT_TRUE(service_.wait_for("close", 1));
  const auto opened = service_.requests("stream").at(0);
  EXPECT_EQ(opened["target"], (Json{{"node", "b"}, {"region", "pool"}, {"epoch", 7}}));
  EXPECT_FALSE(opened.contains("layout"));
  const auto parts = service_.requests("append");
  EXPECT_EQ(parts.at(0)["stream"], 9);
  EXPECT_EQ(parts.at(0)["part"], 0);
  EXPECT_FALSE(parts.at(0).contains("notify"));
  EXPECT_EQ(parts.at(1)["part"], 1);
  EXPECT_TRUE(parts.at(1).contains("notify"));
  EXPECT_EQ(service_.requests("close").at(0)["parts"], 2);
  EXPECT_EQ(code_of([&] { stream.append(kPart); }), "INVALID_ARGUMENT");

  auto event = transfer_event(1, 9, "done");
  event["parts"] = 2;
  event["parts_done"] = 2;
  service_.send(event);
  EXPECT_EQ(stream.wait().parts_done, 2u);
  client.status();
  EXPECT_EQ(service_.requests("close").size(), 1u);
}

TEST_F(ClientStream, AsksAgainForWhatWasNotAnswered) {
  service_.on("append", [](const Json&) { return std::nullopt; });
  service_.on("close", [](const Json&) { return std::nullopt; });
  Client client(options_for(service_));
  auto stream = client.stream(kSpec);
  auto first = stream.append(kPart);
  auto second = stream.append(kPart);
  stream.close();
  ASSERT_TRUE(service_.wait_for("close", 1));
  service_.stop();
  service_.on("append", [](const Json& request) {
    return Json{{"ids", {100 + request["part"].get<std::uint64_t>()}}};
  });
  service_.on("close", [](const Json&) { return Json{{"parts", 2}}; });
  service_.start();
  EXPECT_EQ(first.id(), 100u);
  EXPECT_EQ(second.id(), 101u);
  ASSERT_TRUE(service_.wait_for("close", 2));
  const auto parts = service_.requests("append");
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[2]["part"], 0);
  EXPECT_EQ(parts[3]["part"], 1);
  EXPECT_EQ(parts[2]["layout"], parts[0]["layout"]);
  EXPECT_EQ(service_.requests("stream").size(), 1u);
}

TEST_F(ClientStream, WhoseOpeningWasNotAnsweredIsTheSameWhenAskedAgain) {
  service_.on("stream", [](const Json&) { return std::nullopt; });
  Client client(options_for(service_));
  auto stream = std::async(std::launch::async, [&] { return client.stream(kSpec).id(); });
  ASSERT_TRUE(service_.wait_for("stream", 1));
  service_.stop();
  service_.on("stream", [](const Json&) { return Json{{"ids", {9}}}; });
  service_.start();
  EXPECT_EQ(stream.get(), 9u);
  client.stream(kSpec);
  const auto opened = service_.requests("stream");
  ASSERT_EQ(opened.size(), 3u);
  EXPECT_EQ(opened[0].at("key"), opened[1].at("key"));
  EXPECT_NE(opened[0].at("key"), opened[2].at("key"));
}

TEST_F(ClientStream, IsClosedUntilItIsAnswered) {
  std::atomic<int> asked{0};
  service_.on("close", [&](const Json&) -> std::optional<Json> {
    if (++asked < 3) return std::nullopt;
    return Json{{"parts", 0}};
  });
  service_.on("transfers", [](const Json&) { return std::nullopt; });  // it goes on
  auto options = options_for(service_);
  options.timeout_ms = 1000;
  Client client(options);
  client.stream(kSpec).close();
  ASSERT_TRUE(service_.wait_for("close", 3));
  EXPECT_TRUE(service_.requests("cancel").empty());
}

TEST_F(ClientStream, WhoseCloseIsRefusedIsCancelledUnlessItIsGone) {
  const auto refuse_with = [this](const char* code) {
    service_.on("close", [code](const Json&) {
      return Json{{"error", {{"code", code}, {"message", "not now"}}}};
    });
  };
  Client client(options_for(service_));
  refuse_with("NOT_FOUND");
  client.stream(kSpec).close();
  ASSERT_TRUE(service_.wait_for("close", 1));
  client.status();
  client.status();  // a cancel would have come before this one
  EXPECT_TRUE(service_.requests("cancel").empty());
  refuse_with("DEADLINE_EXCEEDED");  // the service's word, not ours for no answer
  client.stream(kSpec).close();
  EXPECT_TRUE(service_.wait_for("cancel", 1));
  EXPECT_EQ(service_.requests("close").size(), 2u);
}

TEST_F(ClientStream, ThatIsDroppedOpenIsCancelledAndOneThatIsClosedIsNot) {
  Client client(options_for(service_));
  client.stream(kSpec).close();
  ASSERT_TRUE(service_.wait_for("close", 1));
  EXPECT_TRUE(service_.requests("cancel").empty());
  client.stream(kSpec);
  EXPECT_TRUE(service_.wait_for("cancel", 1));
}

TEST_F(ClientStream, ThatIsRefusedThrows) {
  service_.on("stream", [](const Json&) {
    return Json{{"error", {{"code", "NOT_FOUND"}, {"message", "no node 'b'"}}}};
  });
  Client client(options_for(service_));
  EXPECT_EQ(code_of([&] { client.stream(kSpec); }), "NOT_FOUND");
  client.status();
  EXPECT_TRUE(service_.requests("cancel").empty());
}

}  // namespace
}  // namespace penstock::client
