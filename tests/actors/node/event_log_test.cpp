#include "actors/node/event_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class EventLogTest : public testing::Test {
 protected:
  std::vector<std::uint64_t> sequences(const ClientId& client) {
    std::vector<std::uint64_t> all;
    for (const auto& event : std::exchange(sent[client], {})) all.push_back(event.at("seq"));
    return all;
  }
  void publish(Topic topic, const ClientId& owner = "") {
    if (owner.empty()) return log.publish(topic, {{"event", "e"}});
    log.publish_packed(topic, nlohmann::json::to_msgpack({{"seq", log.next()}}), &owner);
  }

  std::map<ClientId, std::vector<nlohmann::json>> sent;
  EventLog log{4, [this](const ClientId& client, const std::vector<std::uint8_t>& event) {
                 sent[client].push_back(nlohmann::json::from_msgpack(event));
               }};
};

TEST_F(EventLogTest, SubscribersGetTheirTopicsInOrder) {
  EXPECT_EQ(*log.subscribe("a", {"transfers", "members"}, {}), 0u);
  publish(Topic::kTransfers);
  publish(Topic::kNotify);
  publish(Topic::kMembers);
  EXPECT_EQ(sent["a"].at(0).at("v"), kProtocolVersion);
  EXPECT_THAT(sequences("a"), ElementsAre(1, 3));
  EXPECT_EQ(log.next(), 4u);
}

TEST_F(EventLogTest, TheOwnerGetsItsOwnOnceSubscribedOrNot) {
  publish(Topic::kTransfers, "a");
  EXPECT_THAT(sequences("a"), ElementsAre(1));
  ASSERT_TRUE(log.subscribe("a", {"transfers"}, {}));
  publish(Topic::kTransfers, "a");
  EXPECT_THAT(sequences("a"), ElementsAre(2));
  publish(Topic::kTransfers, "b");
  EXPECT_THAT(sequences("a"), ElementsAre(3));
}

TEST_F(EventLogTest, KeptEventsSinceThenAreSentFirst) {
  for (int i = 0; i < 3; ++i) publish(Topic::kMembers);
  publish(Topic::kTransfers, "a");
  sent.clear();
  EXPECT_EQ(*log.subscribe("a", {"members"}, 1), 4u);
  EXPECT_THAT(sequences("a"), ElementsAre(2, 3, 4)) << "its own transfers too";
  EXPECT_EQ(*log.subscribe("b", {"members"}, 4), 4u);
  EXPECT_THAT(sequences("b"), IsEmpty());
}

TEST_F(EventLogTest, OnlySoManyAreKept) {
  for (int i = 0; i < 100; ++i) publish(Topic::kMembers);
  ASSERT_TRUE(log.subscribe("a", {"members"}, 0));
  EXPECT_THAT(sequences("a"), ElementsAre(97, 98, 99, 100));
}

TEST_F(EventLogTest, AnUnknownTopicIsRefusedAndChangesNothing) {
  ASSERT_TRUE(log.subscribe("a", {"members"}, {}));
  EXPECT_EQ(log.subscribe("a", {"transfers", "weather"}, 0).error().code,
            ErrorCode::kInvalidArgument);
  publish(Topic::kMembers);
  publish(Topic::kTransfers);
  EXPECT_THAT(sequences("a"), ElementsAre(1));
}

TEST_F(EventLogTest, TopicsAreReplacedAndNoneUnsubscribes) {
  ASSERT_TRUE(log.subscribe("a", {"members"}, {}));
  ASSERT_TRUE(log.subscribe("a", {"notify"}, {}));
  publish(Topic::kMembers);
  EXPECT_THAT(sequences("a"), IsEmpty());
  ASSERT_TRUE(log.subscribe("a", {}, {}));
  EXPECT_EQ(log.subscribers(), 0u);
  publish(Topic::kNotify);
  log.unsubscribe("a");
  EXPECT_THAT(sequences("a"), IsEmpty());
}

}  // namespace
}  // namespace penstock
