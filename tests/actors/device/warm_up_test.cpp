#include "actors/device/warm_up.hpp"

#include "tests/actors/device/outbound_fixture.hpp"

namespace penstock {
namespace {

TEST(WarmUp, TouchesEveryLinkThenMeasures) {
  WarmUp warm_up{WriteCosts{}};
  std::vector<std::size_t> touched;
  while (auto step = warm_up.next()) {
    if (step->plan->bytes() > 64) break;
    touched.push_back(step->link);
    warm_up.done(3, 1ms);
  }
  EXPECT_EQ(touched, (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_FALSE(warm_up.measured());
  // A card that takes 2 us a write and 0.5 ns a byte, on a machine that is busy at first.
  int steps = 0;
  for (; auto step = warm_up.next(); ++steps) {
    EXPECT_EQ(step->link, 0u);
    EXPECT_LE(step->plan->destination_end(), kScratchBytes);
    const auto honest = static_cast<double>(step->plan->chunks()) * 2000 +
                        0.5 * static_cast<double>(step->plan->bytes());
    const double busy = steps < 5 ? 3 : 1;
    warm_up.done(3, std::chrono::nanoseconds(static_cast<long long>(honest * busy)));
    ASSERT_LT(steps, 100);
  }
  EXPECT_TRUE(warm_up.measured());
  for (const std::uint64_t length : {4096ul, 65536ul, 262144ul})
    EXPECT_NEAR(warm_up.costs().of(length), 2000 + 0.5 * static_cast<double>(length), 10);
}

class OutboundWarmUp : public OutboundTest {};

TEST_F(OutboundWarmUp, WritesToEveryLinkAndLearnsTheCostsWithoutAWordToAnyone) {
  outbound->peer_up("b", kPeer, now);
  outbound->warm_up(kPeer, "b", "numa0", use("scratch"), now);
  std::vector<LinkId> touched;
  int rounds = 0;
  for (; outbound->size() > 0 && rounds < 100; ++rounds) {
    const Open open = std::get<Open>(asked.back().question);
    EXPECT_EQ(open.region, "scratch:numa0");
    EXPECT_EQ(open.pack_slots, 0u);
    answer(OpenOk{"numa0", std::nullopt, 9, 1 << 20, {{0, 0, 11}, {1, 0, 22}}});
    const auto* start = std::get_if<StartTransfer>(&commands[commands.size() - 2]);
    ASSERT_NE(start, nullptr);
    ASSERT_EQ(start->paths.size(), 1u);
    if (start->plan->bytes() == 64) touched.push_back(start->paths[0].link);
    TransferIdle event = complete(open.transfer, start->plan->bytes());
    event.elapsed = std::chrono::microseconds(start->plan->chunks());
    outbound->idle(event, now);
  }
  EXPECT_EQ(touched, (std::vector<LinkId>{1, 2}));
  EXPECT_TRUE(ended.empty());
  EXPECT_TRUE(outbound->snapshot().empty());
  EXPECT_NEAR(outbound->costs_of(kPeer).of(65536), 1000, 1);
  outbound->peer_down("b", kPeer, {ErrorCode::kPeerLeft, "gone"}, true, now);
  EXPECT_NEAR(outbound->costs_of(kPeer).of(65536), WriteCosts{}.of(65536), 1);
}

TEST_F(OutboundWarmUp, EndsQuietlyWhenThePeerRefusesOrGoes) {
  outbound->peer_up("b", kPeer, now);
  outbound->warm_up(kPeer, "b", "numa0", use("scratch"), now);
  answer(Refused{{ErrorCode::kNotFound, "no such region"}});
  EXPECT_EQ(outbound->size(), 0u);
  outbound->warm_up(kPeer, "b", "numa0", use("scratch"), now);
  outbound->peer_down("b", kPeer, {ErrorCode::kPeerLeft, "gone"}, true, now);
  EXPECT_EQ(outbound->size(), 0u);
  EXPECT_TRUE(ended.empty());
}

}  // namespace
}  // namespace penstock
