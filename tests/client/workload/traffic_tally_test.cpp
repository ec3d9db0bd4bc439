#include "client/workload/traffic_tally.hpp"

#include <gtest/gtest.h>

namespace penstock::workload {
namespace {

using State = client::TransferResult::State;
using Check = TrafficTally::Check;

client::TransferResult result(State state, const std::string& code = "") {
  client::TransferResult result;
  result.state = state;
  result.bytes = 4096;
  result.error_code = code;
  return result;
}

TEST(TrafficTally, CountsEachEndByItsKindAndCause) {
  TrafficTally tally;
  for (int i = 0; i < 7; ++i) tally.submitted();
  tally.ended(result(State::kDone));
  tally.ended(result(State::kFailed, "PEER_DEAD"));
  tally.ended(result(State::kFailed, "PEER_DEAD"));
  tally.ended(result(State::kExpired, "DEADLINE_EXCEEDED"));
  tally.ended(result(State::kRefused, "DRAINING"));
  tally.ended(result(State::kLost, "PEER_LEFT"));
  const auto json = tally.to_json();
  EXPECT_EQ(json.at("done"), 1);
  EXPECT_EQ(json.at("bytes"), 4096);
  EXPECT_EQ(json.at("failed"), (nlohmann::json{{"PEER_DEAD", 2}, {"DEADLINE_EXCEEDED", 1}}));
  EXPECT_EQ(json.at("refused"), (nlohmann::json{{"DRAINING", 1}}));
  EXPECT_EQ(json.at("lost"), (nlohmann::json{{"PEER_LEFT", 1}}));
  EXPECT_EQ(json.at("open"), 1);
  EXPECT_EQ(tally.open(), 1u);
}

TEST(TrafficTally, TellsRightPagesFromWrongOnesAndThoseThatNobodyCouldRead) {
  TrafficTally tally;
  tally.checked(8, Check::kRight);
  tally.checked(8, Check::kWrong, 3);
  tally.checked(8, Check::kNotPossible);
  const auto json = tally.to_json();
  EXPECT_EQ(json.at("verified_pages"), 13);
  EXPECT_EQ(json.at("wrong_pages"), 3);
  EXPECT_EQ(json.at("unchecked_pages"), 8);
}

}  // namespace
}  // namespace penstock::workload
