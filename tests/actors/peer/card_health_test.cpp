#include "actors/nic/card_health.hpp"

#include <gtest/gtest.h>

namespace penstock {
namespace {

using Change = CardHealth::Change;

TEST(CardHealth, ACardIsOutWhileItsEndpointDoesNotOpen) {
  CardHealth health;
  EXPECT_EQ(health.endpoint(false, "no such device"), Change::kOut);
  EXPECT_FALSE(health.up());
  EXPECT_EQ(health.outages(), 1u);
  EXPECT_EQ(health.last_error(), "no such device");
  EXPECT_EQ(health.endpoint(false, "again"), Change::kNone) << "told once";
  EXPECT_EQ(health.endpoint(true, ""), Change::kBack);
  EXPECT_TRUE(health.up());
  EXPECT_EQ(health.outages(), 1u);
  EXPECT_EQ(health.last_error(), "no such device");
}

TEST(CardHealth, ACardIsOutWhenNoPeerReachesUsOverItAndBackWithTheFirst) {
  CardHealth health;
  EXPECT_EQ(health.seen(1, CardView::kWorks, ""), Change::kNone);
  EXPECT_EQ(health.seen(2, CardView::kOut, "b"), Change::kNone) << "peer 1 still does";
  EXPECT_EQ(health.seen(1, CardView::kOut, "a"), Change::kOut);
  EXPECT_EQ(health.last_error(), "a");
  EXPECT_EQ(health.seen(2, CardView::kWorks, ""), Change::kBack);
}

TEST(CardHealth, APeerThatGoesTakesItsWordWithIt) {
  CardHealth health;
  EXPECT_EQ(health.seen(1, CardView::kOut, "a"), Change::kOut);
  EXPECT_EQ(health.seen(1, CardView::kUnknown, ""), Change::kBack);
}

TEST(CardHealth, BothReasonsHaveToGo) {
  CardHealth health;
  health.seen(1, CardView::kOut, "a");
  health.endpoint(false, "b");
  EXPECT_EQ(health.seen(1, CardView::kWorks, ""), Change::kNone);
  EXPECT_EQ(health.endpoint(true, ""), Change::kBack);
  EXPECT_EQ(health.outages(), 1u);
}

}  // namespace
}  // namespace penstock
