#include "actors/node/acceptance.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class AnAcceptance : public testing::Test {
 protected:
  AnAcceptance() {
    rules.admission.node = "here";
    rules.admission.takes_work = [](const std::string&) -> Result<void> { return {}; };
    rules.audit = &audit;
    for (const char* name : {"mine", "theirs"}) {
      auto region = std::make_shared<Region>();
      region->name = name;
      region->bytes = 1000;
      region->who = name == std::string("mine") ? "me" : "other";
      regions.publish(region);
    }
  }
  static TransferSpec spec(const std::string& region, std::vector<TransferTarget> targets,
                           const std::string& key = "") {
    TransferSpec s;
    s.region = region;
    s.layout = Ranges{BlobList<Range>::of({{0, 0, 10}})};
    s.targets = std::move(targets);
    s.key = key;
    return s;
  }
  Result<Accepted> ask(std::vector<TransferSpec> specs, const Asker& asker) {
    return accept({std::move(specs)}, "client", asker, rules, regions, ledger, now, now);
  }

  TimePoint now{1h};
  Audit audit{0};
  AcceptanceRules rules;
  RegionTable regions;
  Ledger ledger{{10min, 100}, 1};
  const Asker me{"me", Role::kTransfer}, admin{"boss", Role::kAdmin};
};

TEST_F(AnAcceptance, IsOfTheAskersOwnRegionsOnBothSidesOfACopy) {
  EXPECT_TRUE(ask({spec("mine", {{"there", "theirs"}})}, me));
  EXPECT_TRUE(ask({spec("mine", {{"", "mine"}})}, me));
  for (const auto& refused : {spec("theirs", {{"there", "x"}}), spec("mine", {{"", "theirs"}}),
                              spec("mine", {{"there", "x"}, {"here", "theirs"}})}) {
    EXPECT_EQ(ask({refused}, me).error().code, ErrorCode::kDenied);
    EXPECT_TRUE(ask({refused}, admin));
  }
  EXPECT_EQ(audit.count(), 3u);
}

TEST_F(AnAcceptance, IsOfAllOrNothing) {
  EXPECT_FALSE(ask({spec("mine", {{"there", "x"}}), spec("theirs", {{"there", "x"}})}, me));
  EXPECT_EQ(ledger.in_flight(), 0u);
}

TEST_F(AnAcceptance, KnowsTheShareOfEachClient) {
  rules.client_in_flight = 2;
  ASSERT_TRUE(ask({spec("mine", {{"there", "x"}, {"there", "y"}})}, me));
  const auto refused = ask({spec("mine", {{"there", "x"}})}, me);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("limits.client_transfers is 2"));
  EXPECT_TRUE(ask({spec("mine", {{"there", "x"}})}, admin));
  TransferResult ended;
  ended.id = 1;
  ledger.end(ended, now);
  EXPECT_TRUE(ask({spec("mine", {{"there", "x"}})}, me));
}

TEST_F(AnAcceptance, OfAKnownKeyGivesTheFirstIdsAndStartsNothing) {
  const auto first = ask({spec("mine", {{"there", "x"}}, "k")}, me);
  const auto again =
      ask({spec("mine", {{"there", "x"}}, "k"), spec("mine", {{"there", "x"}}, "new"),
           spec("mine", {{"there", "x"}}, "new")},
          me);
  EXPECT_THAT(first->ids, ElementsAre(1));
  EXPECT_THAT(again->ids, ElementsAre(1, 2, 2));
  EXPECT_THAT(again->admitted, SizeIs(1));
}

TEST_F(AnAcceptance, OfADrainingNodeIsOfKnownKeysOnly) {
  ASSERT_TRUE(ask({spec("mine", {{"there", "x"}}, "k")}, me));
  rules.draining = true;
  EXPECT_TRUE(ask({spec("mine", {{"there", "x"}}, "k")}, me));
  EXPECT_EQ(ask({spec("mine", {{"there", "x"}})}, me).error().code, ErrorCode::kDraining);
}

TEST(ARegion, IsForTheNodesThatItAllows) {
  Region region;
  EXPECT_TRUE(region.allows("b", {}));
  region.allow = {"c", "rack=r7"};
  EXPECT_FALSE(region.allows("b", {}));
  EXPECT_FALSE(region.allows("b", {{"rack", "r8"}, {"r7", "rack"}}));
  EXPECT_TRUE(region.allows("c", {}));
  EXPECT_TRUE(region.allows("b", {{"rack", "r7"}}));
  EXPECT_FALSE(region.allows("rack=r7", {}));  // no node has such a name
}

}  // namespace
}  // namespace penstock
