#include "transport/packing/credit.hpp"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Credit, ComesBackAsItWasSent) {
  const Credit credit{0x123456789abcdef0, {0, 1, 0xffffffff}};
  const auto read = decode_credit(encode_credit(credit));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->transfer, credit.transfer);
  EXPECT_EQ(read->immediates, credit.immediates);
}

TEST(Credit, OtherMessagesAndBrokenOnesAreNone) {
  auto bytes = encode_credit({7, {1, 2, 3}});
  EXPECT_FALSE(decode_credit({}));
  EXPECT_FALSE(decode_credit(std::span(bytes).first(bytes.size() - 1)));
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_credit(bytes));
  bytes.pop_back();
  bytes[0] = std::byte{0x95};  // a msgpack array of five
  EXPECT_FALSE(decode_credit(bytes));
  EXPECT_FALSE(decode_credit(encode_credit({7, std::vector<std::uint32_t>(kMaxCreditSlots + 1)})));
}

}  // namespace
}  // namespace penstock
