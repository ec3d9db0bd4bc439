#include "actors/gateway/routes.hpp"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Routes, OfIdentitiesThatCameAndWentAreForgottenAsTheirDescriptorsSpeakAgain) {
  Routes routes;
  routes.note("stays", "a", 1);
  for (int i = 0; i < 100'000; ++i) routes.note("passes " + std::to_string(i), "b", 2 + i % 3);
  EXPECT_EQ(routes.size(), 4u);
  ASSERT_NE(routes.find("stays"), nullptr);
  EXPECT_EQ(routes.find("stays")->who, "a");
  EXPECT_EQ(routes.find("passes 0"), nullptr);
  EXPECT_NE(routes.find("passes 99999"), nullptr);
}

TEST(Routes, OneThatHasComeBackElsewhereOutlivesItsOldDescriptor) {
  Routes routes;
  routes.note("a", "one", 7);
  routes.note("a", "one", 8);
  routes.note("b", "two", 7);
  ASSERT_NE(routes.find("a"), nullptr);
  EXPECT_EQ(routes.find("a")->fd, 8);
  EXPECT_EQ(routes.find("b")->fd, 7);
}

TEST(Routes, TheOneThatSpokeLastHasTheIdentity) {
  Routes routes;
  routes.note("a", "one", 7);
  routes.note("a", "two", 8);
  EXPECT_EQ(routes.find("a")->who, "two");
  routes.note("a", "one", 7);
  EXPECT_EQ(routes.find("a")->fd, 7);
  routes.forget("a");
  EXPECT_EQ(routes.find("a"), nullptr);
  EXPECT_EQ(routes.size(), 0u);
}

}  // namespace
}  // namespace penstock
