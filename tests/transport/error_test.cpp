#include "transport/error.hpp"

#include <gtest/gtest.h>

#include <set>

namespace penstock {
namespace {

TEST(ErrorCode, EveryCodeHasANameOfItsOwnThatReadsBack) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    EXPECT_EQ(error_code_of(name_of(code)), code);
    names.insert(name_of(code));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::kInternal) + 1);
  EXPECT_EQ(name_of(ErrorCode::kOutOfRange), "OUT_OF_RANGE");
  EXPECT_EQ(name_of(ErrorCode::kStaleRegion), "STALE_REGION");
}

TEST(ErrorCode, ANameThatThisBuildDoesNotKnowIsInternal) {
  EXPECT_EQ(error_code_of("FROM_THE_FUTURE"), ErrorCode::kInternal);
}

}  // namespace
}  // namespace penstock
