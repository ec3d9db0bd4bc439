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

TEST_F(AnAcceptance, OfAStreamIsOfItsTermsOnly) {
  std::size_t open_of_client = 1023;
  const auto open = [&](TransferSpec terms, const Asker& asker) {
    return accept_stream({std::move(terms)}, "client", asker, rules, regions, ledger,
                         open_of_client);
  };
  const auto stream = open(spec("mine", {{"there", "x"}}), me);
  ASSERT_TRUE(stream);
  EXPECT_TRUE(stream->is_new);
  EXPECT_EQ(stream->node, "there");
  EXPECT_EQ(ledger.in_flight_of("client", "me"), 1u) << "it counts while it is open";
  EXPECT_EQ(regions.find("mine")->uses.load(), 0u) << "only parts use regions";
  EXPECT_EQ(open(spec("mine", {{"", "mine"}}), me)->node, "here");

  EXPECT_EQ(open(spec("theirs", {{"there", "x"}}), me).error().code, ErrorCode::kDenied);
  EXPECT_EQ(open(spec("mine", {{"", "theirs"}}), me).error().code, ErrorCode::kDenied);
  EXPECT_EQ(open(spec("none", {{"there", "x"}}), admin).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(open(spec("mine", {{"", "none"}}), admin).error().code, ErrorCode::kNotFound);
  rules.client_in_flight = 2;
  EXPECT_EQ(open(spec("mine", {{"there", "x"}}), me).error().code, ErrorCode::kResourceExhausted);
  rules.client_in_flight = 0;
  open_of_client = 1024;
  EXPECT_EQ(open(spec("mine", {{"there", "x"}}), me).error().code, ErrorCode::kResourceExhausted);
  open_of_client = 0;
  rules.admission.takes_work = [](const std::string&) -> Result<void> {
    return fail(ErrorCode::kNotFound, "nobody");
  };
  EXPECT_EQ(open(spec("mine", {{"there", "x"}}), me).error().code, ErrorCode::kNotFound);
  rules.draining = true;
  EXPECT_EQ(open(spec("mine", {{"", "mine"}}), me).error().code, ErrorCode::kDraining);
}

TEST_F(AnAcceptance, OfAStreamsKeyIsOfStreams) {
  ASSERT_TRUE(ask({spec("mine", {{"there", "x"}}, "k")}, me));
  const auto open = [&] {
    return accept_stream({spec("mine", {{"there", "x"}}, "k")}, "client", me, rules, regions,
                         ledger, 0);
  };
  const auto first = open();
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->is_new) << "a transfer has the same key, and is none";
  rules.draining = true;
  const auto again = open();
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->is_new);
  EXPECT_EQ(again->id, first->id);
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

TEST_F(AnAcceptance, OfWhatAnotherNodeIsToDoIsCountedHereAndCheckedThere) {
  std::vector<std::uint64_t> asked_for;
  rules.delegates = [&](const std::string& node, std::uint64_t bytes) -> Result<void> {
    asked_for.push_back(bytes);
    if (node == "there") return {};
    return fail(ErrorCode::kUnsupported, "node '{}' is too old", node);
  };
  const auto elsewhere = [](const std::string& on, const std::string& key = "") {
    TransferSpec one = spec("theirs", {{"", "x"}}, key);
    one.on = on;
    one.to_pass_on = std::make_shared<const std::vector<std::byte>>(100);
    one.deadline_ms = 500;
    return one;
  };
  rules.client_in_flight = 3;
  const auto accepted =
      ask({elsewhere("there", "k"), spec("mine", {{"there", "x"}}), elsewhere("there")}, me);
  ASSERT_TRUE(accepted) << accepted.error().message;
  EXPECT_THAT(accepted->ids, SizeIs(3));
  EXPECT_THAT(accepted->admitted, SizeIs(1));
  ASSERT_THAT(accepted->elsewhere, SizeIs(2));
  const Shadows::Asked& shadow = accepted->elsewhere[0];
  EXPECT_EQ(shadow.id, accepted->ids[0]);
  EXPECT_EQ(shadow.on, "there");
  EXPECT_EQ(shadow.node, "there") << "its own node, to it";
  EXPECT_EQ(shadow.client, "me");
  EXPECT_FALSE(shadow.admin);
  EXPECT_EQ(shadow.deadline, now + 500ms);
  EXPECT_EQ(ledger.find(shadow.id)->device, Ledger::kElsewhere);
  EXPECT_THAT(asked_for, ElementsAre(100, 200)) << "all of a request together";

  const auto again = ask({elsewhere("there", "k")}, me);
  ASSERT_TRUE(again);
  EXPECT_THAT(again->ids, ElementsAre(accepted->ids[0]));
  EXPECT_THAT(again->elsewhere, SizeIs(0));
  EXPECT_EQ(ask({elsewhere("there")}, me).error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(ask({elsewhere("old")}, admin).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(ask({elsewhere("here")}, me).error().code, ErrorCode::kDenied)
      << "on this node it is a transfer as any other";
}

}  // namespace
}  // namespace penstock
