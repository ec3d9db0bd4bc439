#include "client/workload/member_view.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::workload {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

json node(const std::string& name, const std::string& state, std::uint64_t incarnation) {
  return {{"name", name}, {"state", state}, {"incarnation", incarnation}};
}

class MemberViewTest : public testing::Test {
 protected:
  MemberView view;
  std::mt19937_64 random{1};
};

TEST_F(MemberViewTest, OnlyConnectedMembersThatWereProvenArePicked) {
  view.update(json::array({node("a", "self", 1), node("b", "connected", 2),
                           node("c", "connecting", 3), node("d", "draining", 4)}));
  EXPECT_FALSE(view.pick(random));
  EXPECT_THAT(view.unproven(), ElementsAre("b"));
  view.proven("b");
  view.proven("c");
  EXPECT_THAT(view.unproven(), IsEmpty());
  EXPECT_EQ(view.pick(random), (std::pair<std::string, std::uint64_t>("b", 2)));
  view.doubt("b");
  EXPECT_FALSE(view.pick(random));
}

TEST_F(MemberViewTest, ANewIncarnationIsProvenAgain) {
  view.update(json::array({node("b", "connected", 2)}));
  view.proven("b");
  view.update(json::array({node("b", "connected", 2), node("c", "connected", 3)}));
  EXPECT_THAT(view.unproven(), ElementsAre("c"));
  view.update(json::array({node("b", "connected", 5)}));
  EXPECT_THAT(view.unproven(), ElementsAre("b"));
  EXPECT_TRUE(view.has("b", 5));
  EXPECT_FALSE(view.has("b", 2));
}

TEST_F(MemberViewTest, ChangesAreToldOnce) {
  EXPECT_TRUE(view.update(json::array({node("b", "connecting", 2)})));
  EXPECT_FALSE(view.update(json::array({node("b", "connecting", 2)})));
  EXPECT_TRUE(view.update(json::array({node("b", "connected", 2)})));
  EXPECT_TRUE(view.update(json::array()));
  EXPECT_TRUE(view.first("b", 2));
  EXPECT_FALSE(view.first("b", 2));
  EXPECT_TRUE(view.first("b", 3));
}

}  // namespace
}  // namespace penstock::workload
