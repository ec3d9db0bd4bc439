// When a transfer is sent packed, and what it asks for.
#include "tests/actors/device/outbound_fixture.hpp"

namespace penstock {
namespace {

class OutboundPacking : public OutboundTest {
 protected:
  OutboundPacking() {
    options.device = "numa0";
    options.staging_bytes = 256 * 1024;
    options.pack_slots = 16;
    options.costs = costs(3000);
    make();
  }
  static WriteCosts costs(double per_write_ns) {
    WriteCosts costs;
    for (std::size_t i = 0; i < costs.write_ns.size(); ++i)
      costs.write_ns[i] = per_write_ns + 0.3 * static_cast<double>(WriteCosts::kLengths[i]);
    costs.copied_byte_ns = 0.3;
    return costs;
  }
  /// `chunks` pages of `bytes` each, never neighbours.
  Admitted pages(TransferId id, std::uint64_t chunks, std::uint64_t bytes) {
    Admitted a = admitted(id);
    std::vector<Range> ranges;
    for (std::uint64_t i = 0; i < chunks; ++i)
      ranges.push_back({i * 2 * bytes, i * 2 * bytes, bytes});
    a.plan = *Plan::make(Ranges{BlobList<Range>::of(ranges)}, {});
    return a;
  }
  const Open& opened(Admitted a) {
    opening(std::move(a));
    return std::get<Open>(asked.back().question);
  }
  static OpenOk ok() {
    OpenOk answer{"numa0", std::nullopt, 9, 1 << 20, {{0, 0, 11}, {1, 0, 22}}, std::nullopt};
    answer.staging = LentStaging{4096, {{7, 0}, {8, 4096}}, {{0, 0, 111}}};
    return answer;
  }
  template <class T>
  const T* pushed() const {
    for (auto it = commands.rbegin(); it != commands.rend(); ++it)
      if (const auto* one = std::get_if<T>(&*it)) return one;
    return nullptr;
  }
};

TEST_F(OutboundPacking, SmallPagesAreWorthIt) {
  const Open& open = opened(pages(1, 1000, 4096));
  EXPECT_GT(open.pack_slots, 0u);
  EXPECT_EQ(open.chunks, 0u) << "packed transfers end by FIN";
  EXPECT_EQ(open.initiator_device, "numa0");
}

TEST_F(OutboundPacking, LongPagesReadsAndAHandfulAreNot) {
  EXPECT_EQ(opened(pages(1, 1000, 65536)).pack_slots, 0u);
  EXPECT_EQ(opened(pages(2, 4, 4096)).pack_slots, 0u);
  Admitted read = pages(3, 1000, 4096);
  read.direction = Direction::kRead;
  EXPECT_EQ(opened(std::move(read)).pack_slots, 0u);
}

TEST_F(OutboundPacking, TheCostsDecideWhatIsSmall) {
  options.costs = costs(300);  // a card that writes cheaply
  make();
  EXPECT_EQ(opened(pages(1, 1000, 4096)).pack_slots, 0u);
  EXPECT_GT(opened(pages(2, 1000, 512)).pack_slots, 0u);
}

TEST_F(OutboundPacking, TheRequestsWordGoesBeforeTheSettings) {
  Admitted never = pages(1, 1000, 4096);
  never.packing = PackingMode::kNever;
  EXPECT_EQ(opened(std::move(never)).pack_slots, 0u);
  Admitted always = pages(2, 4, 65536);
  always.packing = PackingMode::kAlways;
  EXPECT_GT(opened(std::move(always)).pack_slots, 0u);
  options.packing = PackingMode::kNever;
  make();
  EXPECT_EQ(opened(pages(3, 1000, 4096)).pack_slots, 0u);
  options.staging_bytes = 0;  // there is no staging memory to send from
  make();
  Admitted forced = pages(4, 1000, 4096);
  forced.packing = PackingMode::kAlways;
  EXPECT_EQ(opened(std::move(forced)).pack_slots, 0u);
}

TEST_F(OutboundPacking, AsksForNoMoreSlotsThanItFills) {
  EXPECT_LE(opened(pages(1, 16, 4096)).pack_slots, 1u);
  EXPECT_EQ(opened(pages(2, 10'000, 4096)).pack_slots, 16u);
}

TEST_F(OutboundPacking, GivesThePollerTheSlotsAndTheWayToThem) {
  opened(pages(1, 1000, 4096));
  answer(ok());
  const auto* start = pushed<StartTransfer>();
  ASSERT_NE(start, nullptr);
  ASSERT_TRUE(start->packing);
  EXPECT_EQ(start->packing->below, options.costs.pack_below());
  EXPECT_EQ(start->packing->slots.size(), 2u);
  ASSERT_EQ(start->paths.size(), 2u);
  EXPECT_EQ(start->paths[0].staging_key, 111u);
  EXPECT_EQ(start->paths[1].staging_key, 0u) << "the owner gave no key for its second card";
}

TEST_F(OutboundPacking, AnOwnerWithoutSlotsIsWrittenToDirectly) {
  opened(pages(1, 1000, 4096));
  OpenOk answer_without = ok();
  answer_without.staging.reset();
  answer(std::move(answer_without));
  ASSERT_NE(pushed<StartTransfer>(), nullptr);
  EXPECT_FALSE(pushed<StartTransfer>()->packing);
}

TEST_F(OutboundPacking, WhereNoCreditCameTheFenceMayTakeUntilTheDeadline) {
  opened(pages(1, 1000, 4096));
  answer(ok());
  TransferIdle event = complete(1, 4096);
  event.complete = false;
  outbound->idle(event, now);
  const auto& fence = asked.back();
  EXPECT_TRUE(std::get<Fence>(fence.question).cards.empty()) << "every write was delivered";
  EXPECT_FALSE(std::get<Fence>(fence.question).final);
  EXPECT_EQ(fence.deadline, now + 60s) << "a peer that stands still may come back";
}

TEST_F(OutboundPacking, TheResultSaysWhichWayWasTaken) {
  for (const std::uint64_t packed : {0ul, 4096ul}) {
    const TransferId id = packed + 1;
    opened(pages(id, 1000, 4096));
    answer(ok());
    TransferIdle event = complete(id, 4096 * 1000);
    event.packed_bytes = packed;
    outbound->idle(event, now);
    EXPECT_EQ(ended.at(id).path, packed > 0 ? "packed" : "direct");
  }
}

}  // namespace
}  // namespace penstock
