#include "transport/packing/write_costs.hpp"

#include <gtest/gtest.h>

namespace penstock {
namespace {

WriteCosts linear(double per_write, double per_byte, double copied_byte) {
  WriteCosts costs;
  for (std::size_t i = 0; i < WriteCosts::kLengths.size(); ++i)
    costs.write_ns[i] = per_write + per_byte * static_cast<double>(WriteCosts::kLengths[i]);
  costs.copied_byte_ns = copied_byte;
  return costs;
}

TEST(WriteCosts, AreAStraightLineBetweenWhatWasMeasured) {
  const auto costs = linear(1000, 0.5, 0.1);
  for (const std::uint64_t length : {64ul, 4096ul, 5000ul, 40'000ul, 262'144ul, 1ul << 20})
    EXPECT_NEAR(costs.of(length), 1000 + 0.5 * static_cast<double>(length), 1e-6) << length;
}

TEST(WriteCosts, PackingPaysUpToWhereAWriteCostsAsMuchAsItsCopies) {
  // 3000 + 0.3 x = 1.25 (0.3 + 0.1) x, but for the slot's own write: about 15,000 bytes.
  const auto below = linear(3000, 0.3, 0.1).pack_below();
  EXPECT_GT(below, 11'000u);
  EXPECT_LT(below, 15'000u);
}

TEST(WriteCosts, CheapWritesAreNeverPackedAndDearOnesAlways) {
  EXPECT_EQ(linear(0, 0.3, 0.1).pack_below(), 0u);
  EXPECT_LT(linear(100, 0.3, 0.5).pack_below(), 256u);
  EXPECT_EQ(linear(100'000, 0.3, 0.1).pack_below(), 131'072u);
}

TEST(WriteCosts, AnOddLengthThatIsSlowIsPackedToo) {
  auto costs = linear(1000, 0.3, 0.1);
  costs.write_ns[2] *= 2;  // as 64 KiB over loopback tcp, which needs two packets
  EXPECT_GT(costs.pack_below(), 65'536u);
}

}  // namespace
}  // namespace penstock
