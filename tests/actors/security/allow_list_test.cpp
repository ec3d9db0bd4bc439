#include "actors/security/allow_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/security/audit.hpp"

namespace penstock {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

const Key kOne = make_key_pair().public_key;
const Key kOther = make_key_pair().public_key;

std::string error_of(const std::string& text) {
  const auto list = AllowList::parse(text, "clients");
  return list ? "accepted" : list.error().message;
}

TEST(AnAllowList, GivesEachKeyItsNameAndRole) {
  const auto list = AllowList::parse("# who may what\n\n  read   watcher " + z85_of(kOne) +
                                         "\r\ntransfer\ttrainer-7 " + z85_of(kOther),
                                     "clients");
  ASSERT_TRUE(list) << list.error().message;
  ASSERT_NE(list->find(kOne), nullptr);
  EXPECT_EQ(list->find(kOne)->name, "watcher");
  EXPECT_EQ(list->find(kOne)->role, Role::kRead);
  EXPECT_EQ(list->find(kOther)->role, Role::kTransfer);
  EXPECT_EQ(list->find(make_key_pair().public_key), nullptr);
}

TEST(AnAllowList, MayGiveOneNameToSeveralKeysButOneRoleOnly) {
  EXPECT_TRUE(AllowList::parse("read a " + z85_of(kOne) + "\nread a " + z85_of(kOther), "clients"));
  EXPECT_THAT(error_of("read a " + z85_of(kOne) + "\nadmin a " + z85_of(kOther)),
              HasSubstr("clients:2: 'a' has another role above"));
}

TEST(AnAllowList, OfWhichALineIsWrongIsRefusedAsAWholeAndSaysWhere) {
  const std::string key = z85_of(kOne);
  EXPECT_THAT(error_of("\nroot a " + key), HasSubstr("clients:2: 'root' is no role"));
  EXPECT_THAT(error_of("read a/b " + key), HasSubstr("is no name"));
  EXPECT_THAT(error_of("read " + key), HasSubstr("is no name"));
  EXPECT_THAT(error_of("read a short"), HasSubstr("not a key"));
  EXPECT_THAT(error_of("read a " + key + " admin"), HasSubstr("more than"));
  EXPECT_THAT(error_of("read a " + key + "\nadmin b " + key), HasSubstr("given twice"));
}

TEST(TheAudit, WritesSoManyLinesASecondAndTellsHowManyItDidNot) {
  AuditLimit limit(2);
  const TimePoint start{};
  EXPECT_TRUE(limit.next(start).write);
  EXPECT_TRUE(limit.next(start + 1ms).write);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(limit.next(start + 2ms).write);
  const auto verdict = limit.next(start + 1000ms);
  EXPECT_TRUE(verdict.write);
  EXPECT_EQ(verdict.untold, 1000u);
  EXPECT_EQ(limit.next(start + 1001ms).untold, 0u);
}

}  // namespace
}  // namespace penstock
