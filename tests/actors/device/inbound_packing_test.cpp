// Staging slots that are lent to packed transfers, and how they come back.
#include <set>

#include "tests/actors/device/inbound_fixture.hpp"

namespace penstock {
namespace {

class InboundPacking : public InboundTest {
 protected:
  InboundPacking() { lend(FenceKind::kReopenInbound); }
  /// Eight slots of 4 KiB, from byte 8192 on.
  void lend(FenceKind kind) {
    staging = std::make_shared<Region>();
    staging->name = ".staging";
    staging->bytes = 10 * 4096;
    staging->set_registered(nullptr, {key(), key()});
    pool = std::make_shared<StagingPool>(staging, 4096, 8192, 8);
    make(kind);
  }
  const OpenOk& open_packed(TransferId id, std::uint32_t slots, std::vector<LinkId> links = {9}) {
    Open question = open_of(id, 0);
    question.pack_slots = slots;
    return std::get<OpenOk>(ask(question, std::move(links)));
  }
  void disarm_all() {
    for (const auto& each : pushed<DisarmPacked>())
      if (each.tag != 0) inbound->disarmed(each.tag, now);
  }
  std::shared_ptr<Region> staging;
};

TEST_F(InboundPacking, LendsSlotsAndArmsThemBeforeItAnswers) {
  const OpenOk& ok = open_packed(1, 2);
  ASSERT_TRUE(ok.staging);
  EXPECT_EQ(ok.staging->slot_bytes, 4096u);
  ASSERT_EQ(ok.staging->slots.size(), 2u);
  EXPECT_NE(ok.staging->slots[0].immediate, ok.staging->slots[1].immediate);
  EXPECT_GE(ok.staging->slots[0].offset, 8192u);
  EXPECT_EQ(ok.staging->keys.size(), 2u);
  EXPECT_NE(ok.staging->keys[0].key, ok.keys[0].key);
  const auto armed = pushed<ArmPacked>();
  ASSERT_EQ(armed.size(), 1u);
  EXPECT_EQ(armed[0].transfer, 1u);
  EXPECT_EQ(armed[0].slots.size(), 2u);
  EXPECT_EQ(armed[0].credit_links, std::vector<LinkId>{9});
}

TEST_F(InboundPacking, LendsNoMoreThanAQuarterOfWhatIsLeft) {
  EXPECT_EQ(open_packed(1, 16).staging->slots.size(), 2u);
  EXPECT_EQ(open_packed(2, 16).staging->slots.size(), 1u);
  EXPECT_EQ(pool->lent(), 3u);
}

TEST_F(InboundPacking, WithoutSlotsLinksOrStagingATransferGoesDirectly) {
  EXPECT_FALSE(open_packed(1, 2, {}).staging);
  pool = nullptr;
  make(FenceKind::kReopenInbound);
  EXPECT_FALSE(open_packed(2, 2).staging);
}

TEST_F(InboundPacking, FinBringsTheSlotsBack) {
  open_packed(1, 2);
  EXPECT_EQ(pool->lent(), 2u);
  fin(1);
  EXPECT_EQ(pool->lent(), 0u);
  EXPECT_EQ(pushed<DisarmPacked>().size(), 1u);
}

TEST_F(InboundPacking, AFenceIsAnsweredOnlyWhenNothingIsScatteredAnyMore) {
  open_packed(1, 2);
  const auto asked = fence(1, false);  // no card is dirty: the slots alone are in question
  EXPECT_FALSE(answers.contains(asked));
  EXPECT_EQ(pool->lent(), 2u) << "a late write may still land in them";
  disarm_all();
  EXPECT_TRUE(is<Fenced>(asked));
  EXPECT_EQ(pool->lent(), 0u);
}

TEST_F(InboundPacking, AFenceWaitsForTheCardsAndTheSlotsInAnyOrder) {
  for (const bool cards_first : {true, false}) {
    SCOPED_TRACE(cards_first);
    const TransferId id = cards_first ? 1 : 2;
    open_packed(id, 2);
    const std::uint32_t generation = inbound->cards()[0].generation;
    const auto asked = fence(id, true, {{0, generation}});
    if (cards_first)
      reopened(0, generation + 1);
    else
      disarm_all();
    EXPECT_FALSE(answers.contains(asked));
    EXPECT_GT(pool->lent(), 0u);
    if (cards_first)
      disarm_all();
    else
      reopened(0, generation + 1);
    EXPECT_TRUE(is<Fenced>(asked));
    EXPECT_EQ(pool->lent(), 0u);
    commands.clear();
  }
}

TEST_F(InboundPacking, ALeaseThatEndsVoidsTheKeysOfTheSlotsToo) {
  open_packed(1, 2);
  advance(11s);
  std::set<std::string> voided;
  for (const auto& [of, nic] : rekeys) voided.insert(of->name);
  EXPECT_EQ(voided, (std::set<std::string>{".staging", "r"}));
  disarm_all();
  reopen_all();
  EXPECT_TRUE(broken.empty());
  rekey_all();
  EXPECT_EQ(broken, std::vector<TransferId>{1});
  EXPECT_EQ(pool->lent(), 0u);
}

TEST_F(InboundPacking, WhereKeysGuardAFenceVoidsThoseOfTheSlotsOnTheDirtyCard) {
  lend(FenceKind::kRekey);
  open_packed(1, 2);
  const auto asked = fence(1, true, {{1, 1}});
  ASSERT_EQ(rekeys.size(), 2u);
  EXPECT_EQ(rekeys[0].second, 1u);
  disarm_all();
  EXPECT_FALSE(answers.contains(asked));
  rekey_all();
  EXPECT_TRUE(is<Fenced>(asked));
}

TEST_F(InboundPacking, AnInitiatorThatNeverSawTheAnswerReleasesTheSlots) {
  open_packed(1, 2);
  inbound->forget(kPeer, 1, now);
  EXPECT_EQ(pool->lent(), 0u);
}

// -- remembering ---------------------------------------------------------------------------------

TEST_F(InboundTest, OfWhatEndedWithItsLastWordTheNewestAreRemembered) {
  options.remember_most = 3;
  make(FenceKind::kReopenInbound);
  for (TransferId id = 1; id <= 10; ++id) {
    open(id);
    inbound->fin(kPeer, ++sequence, {id, "numa0"}, now);
  }
  EXPECT_EQ(inbound->known_count(), 3u);
  inbound->fin(kPeer, ++sequence, {10, "numa0"}, now);
  EXPECT_TRUE(std::holds_alternative<FinOk>(answers.at(sequence))) << "a repetition";
  now += options.remember;
  inbound->tick(now);
  EXPECT_EQ(inbound->known_count(), 0u);
}

TEST_F(InboundTest, WhatCountedItselfFullIsRememberedUntilItsInitiatorHasSpoken) {
  options.remember_most = 3;
  make(FenceKind::kReopenInbound);
  const auto immediate = open(1);
  inbound->counted(immediate, now);
  for (TransferId id = 2; id <= 10; ++id) {
    open(id);
    inbound->fin(kPeer, ++sequence, {id, "numa0"}, now);
  }
  fence(1, false);
  EXPECT_TRUE(std::holds_alternative<AlreadyDone>(answers.at(sequence)))
      << "or its initiator would post again what has another owner now";
}

TEST_F(InboundTest, FencesOfWhatWasNeverOpenedAreRememberedToTheBoundOnly) {
  options.remember_most = 3;
  make(FenceKind::kReopenInbound);
  for (TransferId id = 1; id <= 100; ++id) fence(id, true);
  EXPECT_EQ(inbound->known_count(), 3u);
}

TEST_F(InboundTest, OpensAreRefusedWhileTooManyAreKnown) {
  options.known_most = 3;
  make(FenceKind::kReopenInbound);
  for (TransferId id = 1; id <= 3; ++id) inbound->counted(open(id), now);
  open(4);
  EXPECT_TRUE(std::holds_alternative<Refused>(answers.at(sequence)));
  now += options.remember;
  inbound->tick(now);
  open(5);
  EXPECT_TRUE(std::holds_alternative<OpenOk>(answers.at(sequence)));
}

}  // namespace
}  // namespace penstock
