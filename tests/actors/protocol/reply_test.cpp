#include "actors/protocol/reply.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace penstock::test {
namespace {

TEST(Reply, OkCarriesVersionIdAndBody) {
  nlohmann::json expected = {{"v", 1}, {"id", 9}, {"ok", true}, {"ids", {1, 2}}};
  EXPECT_EQ(ok_reply(9, {{"ids", {1, 2}}}), expected);
}

TEST(Reply, ErrorCarriesTheCodesNameAndTheWords) {
  nlohmann::json expected = {{"v", 1},
                             {"id", UINT64_MAX},
                             {"ok", false},
                             {"error", {{"code", "STALE_REGION"}, {"message", "epoch 3 is gone"}}}};
  EXPECT_EQ(error_reply(UINT64_MAX, {ErrorCode::kStaleRegion, "epoch 3 is gone"}), expected);
}

TransferResult failed_result() {
  TransferResult result;
  result.id = 77;
  result.node = "b";
  result.region = "kv";
  result.remote_region = "pool";
  result.direction = "write";
  result.lane = "bulk";
  result.state = TransferResult::State::kFailed;
  result.remote = TransferResult::Remote::kUnreachable;
  result.bytes = 4096;
  result.writes = 2;
  result.elapsed_us = 1234;
  result.path = "direct";
  result.cards = {{"eth0", {4096, 2}}};
  result.error = {ErrorCode::kPeerLeft, "b left"};
  result.landed = {0, 8192, 4096};
  return result;
}

TEST(TransferEvent, OfAFailureSaysWhyAndWhatLanded) {
  nlohmann::json event = nlohmann::json::from_msgpack(transfer_event(failed_result(), 12));
  EXPECT_EQ(event["event"], "transfer");
  EXPECT_EQ(event["seq"], 12);
  EXPECT_EQ(event["state"], "failed");
  EXPECT_EQ(event["remote"], "unreachable");
  EXPECT_EQ(event["error"]["code"], "PEER_LEFT");
  EXPECT_EQ(event["cards"][0], nlohmann::json({{"name", "eth0"}, {"bytes", 4096}, {"writes", 2}}));
  ASSERT_TRUE(event["landed"].is_binary());
  ASSERT_EQ(event["landed"].get_binary().size(), 24u);
  std::uint64_t destination = 0;
  std::memcpy(&destination, event["landed"].get_binary().data() + 8, 8);
  EXPECT_EQ(destination, 8192u);
}

TEST(TransferEvent, OfASuccessHasNoErrorAndNoList) {
  TransferResult result = failed_result();
  result.state = TransferResult::State::kDone;
  result.remote = TransferResult::Remote::kQuiet;
  nlohmann::json event = nlohmann::json::from_msgpack(transfer_event(result, 1));
  EXPECT_EQ(event["state"], "done");
  EXPECT_EQ(event["remote"], "quiet");
  EXPECT_FALSE(event.contains("error"));
  EXPECT_FALSE(event.contains("landed"));
}

TEST(TransferEvent, OfAStreamAndOfAnotherNodeSaysSo) {
  TransferResult result = failed_result();
  result.on = "c";
  result.on_as = 7;
  result.stream = 5;
  result.part = 3;
  result.parts = {4, 2};
  const auto event = nlohmann::json::from_msgpack(transfer_event(result, 1));
  EXPECT_EQ(event["on"], "c");
  EXPECT_EQ(event["on_as"], 7);
  EXPECT_EQ(event["stream"], 5);
  EXPECT_EQ(event["part"], 3);
  EXPECT_EQ(event["parts"], 4);
  EXPECT_EQ(event["parts_done"], 2);
  EXPECT_EQ(event["landed_truncated"], false);
}

TEST(AcceptedReply, IsAnOkReplyWithTheIds) {
  const std::vector<std::uint64_t> ids = {1, UINT64_MAX};
  EXPECT_EQ(nlohmann::json::from_msgpack(accepted_reply(3, ids)), ok_reply(3, {{"ids", ids}}));
}

TEST(TransferState, HasAWordForEach) {
  using State = TransferResult::State;
  EXPECT_EQ(name_of(State::kDone), "done");
  EXPECT_EQ(name_of(State::kFailed), "failed");
  EXPECT_EQ(name_of(State::kCancelled), "cancelled");
  EXPECT_EQ(name_of(State::kExpired), "expired");
}

}  // namespace
}  // namespace penstock::test
