// The table behind the protocol: finding, random picks, rounds, digests.
#include "actors/membership/member_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace penstock {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

Rumor rumor(const std::string& node, Incarnation incarnation = 1, std::string endpoint = "") {
  if (endpoint.empty()) endpoint = "tcp://" + node + ":1";
  Rumor rumor;
  rumor.who = make_identity(node, incarnation, endpoint, 0);
  return rumor;
}

TEST(MemberTable, FindsByNameAndEndpointThroughAnyComingAndGoing) {
  MemberTable table(1);
  std::map<std::string, Incarnation> expected;
  std::mt19937_64 random(1);
  for (int step = 0; step < 20000; ++step) {
    const std::string node = "n" + std::to_string(random() % 300);
    const MemberTable::Index known = table.find(node);
    ASSERT_EQ(known != MemberTable::kNone, expected.contains(node)) << step;
    if (known != MemberTable::kNone && random() % 2 == 0) {
      table.remove(known);
      expected.erase(node);
    } else {
      const Incarnation incarnation = expected[node] + 1;
      table.put(rumor(node, incarnation), known);
      expected[node] = incarnation;
    }
  }
  EXPECT_EQ(table.size(), expected.size());
  for (const auto& [node, incarnation] : expected) {
    const MemberTable::Index index = table.at_endpoint("tcp://" + node + ":1");
    ASSERT_NE(index, MemberTable::kNone);
    EXPECT_EQ(table[index].who->incarnation, incarnation);
    EXPECT_EQ(index, table.find(node));
  }
}

TEST(MemberTable, AnEndpointBelongsToTheNewestIncarnation) {
  MemberTable table(1);
  const auto old = table.put(rumor("old", 1, "tcp://x:1"));
  const auto young = table.put(rumor("young", 2, "tcp://x:1"));
  EXPECT_EQ(table.at_endpoint("tcp://x:1"), young);
  table.remove(old);
  EXPECT_EQ(table.at_endpoint("tcp://x:1"), young);
  table.put(rumor("older", 1, "tcp://x:1"));
  EXPECT_EQ(table.at_endpoint("tcp://x:1"), young);
}

TEST(MemberTable, PicksDistinctLivingMembers) {
  MemberTable table(1);
  std::vector<MemberTable::Index> all;
  for (int i = 0; i < 50; ++i) all.push_back(table.put(rumor("n" + std::to_string(i))));
  for (int i = 0; i < 25; ++i)
    table.change(all[static_cast<std::size_t>(i)], 0, i % 2 ? Opinion::kDead : Opinion::kLeft,
                 false);
  EXPECT_THAT(table.living(), SizeIs(25));
  EXPECT_THAT(table.dead(), SizeIs(25)) << "none of them for good";
  for (std::size_t count : {1u, 3u, 20u, 24u, 99u}) {
    const auto picked = table.pick(count, all[30]);
    EXPECT_THAT(picked, SizeIs(std::min<std::size_t>(count, 24)));
    EXPECT_EQ(std::set(picked.begin(), picked.end()).size(), picked.size());
    for (auto index : picked) {
      EXPECT_TRUE(table[index].live());
      EXPECT_NE(index, all[30]);
    }
  }
  EXPECT_THAT(MemberTable(1).pick(3), IsEmpty());
}

TEST(MemberTable, ARoundHasEveryLivingMemberOnceAndNewcomersJoinIt) {
  MemberTable table(1);
  EXPECT_EQ(table.next_in_round(), MemberTable::kNone);
  for (int i = 0; i < 10; ++i) table.put(rumor("n" + std::to_string(i)));
  std::multiset<MemberTable::Index> asked;
  for (int i = 0; i < 10; ++i) asked.insert(table.next_in_round());
  EXPECT_EQ(std::set(asked.begin(), asked.end()).size(), 10u);
  for (int i = 0; i < 3; ++i) table.next_in_round();  // in the middle of the second round
  const auto late = table.put(rumor("late"));
  bool seen = false;
  for (int i = 0; i < 8; ++i) seen |= table.next_in_round() == late;
  EXPECT_TRUE(seen);
  table.change(late, 0, Opinion::kDead, false);
  for (int i = 0; i < 30; ++i) EXPECT_NE(table.next_in_round(), late);
}

TEST(MemberTable, DigestsAreEqualWhereTheLivingAreWhateverTheOrder) {
  MemberTable one(1);
  MemberTable other(2);
  for (int i = 0; i < 100; ++i) one.put(rumor("n" + std::to_string(i)));
  for (int i = 99; i >= 0; --i) other.put(rumor("n" + std::to_string(i)));
  EXPECT_EQ(one.digests(), other.digests());
  const auto some = one.find("n7");
  one.change(some, 1, Opinion::kAlive, false);
  EXPECT_NE(one.digests(), other.digests());
  one.change(some, 0, Opinion::kSuspect, false);
  EXPECT_EQ(one.digests(), other.digests()) << "suspicions aside";
  one.change(some, 0, Opinion::kDead, false);
  other.remove(other.find("n7"));
  EXPECT_EQ(one.digests(), other.digests()) << "when each forgets the dead is its own affair";
}

}  // namespace
}  // namespace penstock
