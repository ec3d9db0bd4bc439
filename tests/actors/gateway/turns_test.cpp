#include "actors/gateway/turns.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using testing::ElementsAre;

Request numbered(std::uint64_t id) {
  Request request;
  request.id = id;
  return request;
}

/// The clients of what is taken, in order; nothing of it ends.
std::vector<std::string> take_all(Turns& turns) {
  std::vector<std::string> clients;
  while (auto next = turns.next()) clients.push_back(next->client);
  return clients;
}

TEST(Turns, GoRoundSoThatAFloodDelaysItsSenderOnly) {
  Turns turns({.client_requests = 1000, .client_under_way = 4});
  for (std::uint64_t i = 0; i < 500; ++i) ASSERT_TRUE(turns.add("flood", numbered(i), 10));
  ASSERT_TRUE(turns.add("good", numbered(1), 10));
  EXPECT_THAT(take_all(turns), ElementsAre("flood", "good", "flood", "flood", "flood"));
  EXPECT_EQ(turns.waiting(), 496u);
}

TEST(Turns, KeepTheOrderOfEachClient) {
  Turns turns({});
  for (std::uint64_t i = 0; i < 5; ++i) turns.add("a", numbered(i), 1);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(turns.next()->request.id, i);
}

TEST(Turns, GoOnWhenSomethingUnderWayEnds) {
  Turns turns({.client_under_way = 1});
  turns.add("a", numbered(1), 1);
  turns.add("a", numbered(2), 1);
  auto first = turns.next();
  ASSERT_TRUE(first);
  EXPECT_FALSE(turns.next());
  --first->load->under_way;
  EXPECT_EQ(turns.next()->request.id, 2u);
}

TEST(Turns, RefuseWhatIsAboveAClientsShareAndNobodyElses) {
  Turns turns({.client_requests = 3, .client_under_way = 1});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(turns.add("a", numbered(0), 1));
  EXPECT_FALSE(turns.add("a", numbered(0), 1));
  EXPECT_TRUE(turns.add("b", numbered(0), 1));
  auto first = turns.next();  // under way still counts
  EXPECT_FALSE(turns.add("a", numbered(0), 1));
  --first->load->under_way;
  EXPECT_TRUE(turns.add("a", numbered(0), 1));
}

TEST(Turns, BoundTheBytesThatWaitButTakeASingleRequestOfAnySize) {
  Turns turns({.client_bytes = 100});
  EXPECT_TRUE(turns.add("a", numbered(1), 1000));
  EXPECT_FALSE(turns.add("a", numbered(2), 1));
  ASSERT_TRUE(turns.next());
  EXPECT_TRUE(turns.add("a", numbered(2), 100));
  EXPECT_FALSE(turns.add("a", numbered(3), 1));
}

TEST(Turns, ForgetClientsThatHaveNothing) {
  Turns turns({});
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(turns.add("client " + std::to_string(i), numbered(0), 1));
    auto next = turns.next();
    ASSERT_TRUE(next);
    --next->load->under_way;
  }
  EXPECT_LT(turns.known(), 200u);
}

TEST(Turns, KnowWhoHasSomethingWaitingOrUnderWay) {
  Turns turns({});
  EXPECT_FALSE(turns.has_any("a"));
  turns.add("a", numbered(1), 1);
  EXPECT_TRUE(turns.has_any("a"));
  auto next = turns.next();
  ASSERT_TRUE(next);
  EXPECT_TRUE(turns.has_any("a"));
  --next->load->under_way;
  EXPECT_FALSE(turns.has_any("a"));
}

}  // namespace
}  // namespace penstock
