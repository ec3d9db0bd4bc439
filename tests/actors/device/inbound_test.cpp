// The owner's side: the test plays the peers, the poller and the registrar.
#include "tests/actors/device/inbound_fixture.hpp"

namespace penstock {
namespace {

// -- open ----------------------------------------------------------------------------------------

TEST_F(InboundTest, OpenAnswersWithKeysAndCountsBeforeItAnswers) {
  open(1);
  const auto ok = std::get<OpenOk>(answers.at(1));
  EXPECT_EQ(ok.device, "numa0");
  EXPECT_EQ(ok.epoch, region->epoch);
  ASSERT_EQ(ok.keys.size(), 2u);
  EXPECT_EQ(ok.keys[1].key, 2u);
  ASSERT_EQ(pushed<ArmImmediate>().size(), 1u);
  EXPECT_EQ(pushed<ArmImmediate>()[0].count, 3u);
  EXPECT_EQ(region->uses, 1u);
}

TEST_F(InboundTest, OpenAskedTwiceIsOpenOnce) {
  const auto first = open(1);
  EXPECT_EQ(open(1), first);
  EXPECT_EQ(inbound->open_count(), 1u);
  EXPECT_EQ(region->uses, 1u);
  EXPECT_EQ(pushed<ArmImmediate>().size(), 1u);
  EXPECT_NE(open(1, kPeer + 1), first) << "another peer's transfer of that number";
}

// A poller that does not know of it goes to sleep between two pages.
TEST_F(InboundTest, ThePollerIsToldWhetherPeersAreAtWork) {
  const auto told = [&] {
    std::vector<bool> at_work;
    for (const auto& each : pushed<PeersAtWork>()) at_work.push_back(each.at_work);
    return at_work;
  };
  open(1);
  open(2);
  const std::vector once{true};
  EXPECT_EQ(told(), once) << "before the answer, for the first of them";
  fin(1);
  EXPECT_EQ(told(), once);
  fence(2, true);
  const std::vector again{true, false};
  EXPECT_EQ(told(), again);
  fence(2, true);
  open(3);
  const std::vector third{true, false, true};
  EXPECT_EQ(told(), third);
}

TEST_F(InboundTest, OpenRefusesByName) {
  const auto refused = [&](const Open& question) {
    ask(question);
    return refusal(sequence);
  };
  Open question = open_of(1);
  question.region = "nobody";
  EXPECT_EQ(refused(question), ErrorCode::kNotFound);
  question = open_of(1);
  question.epoch = region->epoch + 1;
  EXPECT_EQ(refused(question), ErrorCode::kStaleRegion);
  question = open_of(1);
  question.end = 1001;
  EXPECT_EQ(refused(question), ErrorCode::kOutOfRange);
  question.end = ~std::uint64_t{0};
  EXPECT_EQ(refused(question), ErrorCode::kOutOfRange);
  for (TransferId id = 10; id < 14; ++id) open(id);
  EXPECT_EQ(refused(open_of(1)), ErrorCode::kResourceExhausted);
  inbound->drain();
  EXPECT_EQ(refused(open_of(1)), ErrorCode::kDraining);
  open(10);
  EXPECT_TRUE(is<OpenOk>(sequence)) << "what was open before the drain is answered again";
  ASSERT_TRUE(table.close("r", true));
  EXPECT_EQ(inbound->open_count(), 4u);
  EXPECT_EQ(region->uses, 4u);
}

TEST_F(InboundTest, ATransferThatIsNotCountedGetsNoImmediate) {
  ask(open_of(1, 0));
  EXPECT_FALSE(std::get<OpenOk>(answers.at(sequence)).immediate);
  EXPECT_TRUE(is<FinOk>(fin(1)));
  options.immediate_data = false;
  make(FenceKind::kReopenInbound);
  ask(open_of(2));
  EXPECT_FALSE(std::get<OpenOk>(answers.at(sequence)).immediate);
}

// -- done ----------------------------------------------------------------------------------------

TEST_F(InboundTest, AFullCountIsDoneAndNotifiesOnceAndFinFreesTheSlot) {
  const auto immediate = open(1, kPeer, "word");
  inbound->counted(immediate, now);
  EXPECT_EQ(inbound->open_count(), 0u);
  EXPECT_EQ(region->uses, 0u);
  ASSERT_EQ(notified.size(), 1u);
  EXPECT_EQ(notified[0].data, "word");
  EXPECT_TRUE(pushed<DisarmImmediate>().empty()) << "in quarantine until FIN";
  EXPECT_TRUE(is<FinOk>(fin(1)));
  EXPECT_TRUE(is<FinOk>(fin(1))) << "asked again";
  EXPECT_EQ(pushed<DisarmImmediate>().size(), 1u);
  EXPECT_EQ(notified.size(), 1u);
}

TEST_F(InboundTest, FinBeforeTheCountIsDoneAndALateCountIsNothing) {
  const auto immediate = open(1, kPeer, "word");
  EXPECT_TRUE(is<FinOk>(fin(1)));
  inbound->counted(immediate, now);
  EXPECT_EQ(notified.size(), 1u);
  EXPECT_EQ(inbound->open_count(), 0u);
}

TEST_F(InboundTest, ImmediatesOfNobodyAreNothing) {
  inbound->counted(12345, now);
  EXPECT_EQ(inbound->open_count(), 0u);
}

TEST_F(InboundTest, FinForWhatIsNotOpenIsRefused) {
  EXPECT_EQ(refusal(fin(9)), ErrorCode::kCancelled);
}

TEST_F(InboundTest, ASlotIsNotUsedAgainUnderTheSameGeneration) {
  std::set<std::uint32_t> seen;
  for (TransferId id = 1; id <= 3 * Slots::kReuseAfter; ++id) {
    EXPECT_TRUE(seen.insert(open(id)).second);
    fin(id);
  }
}

// -- fences of the initiator ---------------------------------------------------------------------

TEST_F(InboundTest, AFenceReopensTheCardsAndAnswersWhenAllAreQuiet) {
  open(1);
  const auto asked = fence(1, true, {{0, 1}, {1, 1}});
  EXPECT_EQ(pushed<ReopenInbound>().size(), 2u);
  reopened(0, 2);
  EXPECT_FALSE(answers.contains(asked));
  EXPECT_EQ(region->uses, 1u) << "not quiet yet";
  reopened(1, 2);
  const auto fenced = std::get<Fenced>(answers.at(asked));
  EXPECT_EQ(fenced.cards.at(0).generation, 2u);
  EXPECT_EQ(region->uses, 0u);
  EXPECT_EQ(inbound->open_count(), 0u);
  EXPECT_EQ(pushed<DisarmImmediate>().size(), 1u);
}

TEST_F(InboundTest, WhatWasPostedUnderAnOlderGenerationIsQuietAlready) {
  reopened(0, 5);
  open(1);
  EXPECT_TRUE(is<Fenced>(fence(1, true, {{0, 4}})));
  EXPECT_TRUE(pushed<ReopenInbound>().empty());
}

TEST_F(InboundTest, AGenerationThatIsNotThereYetIsReopened) {
  open(1);
  const auto asked = fence(1, true, {{0, 99}, {7, 1}});
  ASSERT_EQ(pushed<ReopenInbound>().size(), 1u);
  EXPECT_FALSE(answers.contains(asked));
  reopened(0, 2);
  EXPECT_TRUE(is<Fenced>(asked));
}

TEST_F(InboundTest, TwoFencesOfOneCardShareItsReopening) {
  open(1);
  open(2);
  const auto first = fence(1, true, {{0, 1}});
  const auto second = fence(2, true, {{0, 1}});
  EXPECT_EQ(pushed<ReopenInbound>().size(), 1u);
  reopened(0, 2);
  EXPECT_TRUE(is<Fenced>(first));
  EXPECT_TRUE(is<Fenced>(second));
}

TEST_F(InboundTest, AResumedTransferStaysOpenWithoutItsCountAndEndsByFin) {
  const auto immediate = open(1, kPeer, "word");
  EXPECT_TRUE(is<Fenced>(fence(1, false)));
  inbound->counted(immediate, now);
  EXPECT_EQ(inbound->open_count(), 1u);
  EXPECT_TRUE(notified.empty());
  EXPECT_TRUE(is<FinOk>(fin(1)));
  EXPECT_EQ(notified.size(), 1u);
}

TEST_F(InboundTest, ACountThatFillsWhileItIsFencedDoesNotHandThePagesOut) {
  const auto immediate = open(1, kPeer, "word");
  fence(1, false, {{0, 1}});
  inbound->counted(immediate, now);
  EXPECT_TRUE(notified.empty());
  EXPECT_EQ(region->uses, 1u);
  EXPECT_EQ(refusal(fin(1)), ErrorCode::kCancelled);
  reopened(0, 2);
  EXPECT_EQ(inbound->open_count(), 1u);
}

TEST_F(InboundTest, AFenceOfWhatIsDoneSaysSo) {
  inbound->counted(open(1), now);
  EXPECT_TRUE(is<AlreadyDone>(fence(1, false, {{0, 1}})));
  EXPECT_TRUE(is<AlreadyDone>(fence(1, true)));
  EXPECT_TRUE(pushed<ReopenInbound>().empty());
}

TEST_F(InboundTest, AFenceOfWhatHasEndedIsQuietButDoesNotLetItGoOn) {
  open(1);
  fence(1, true);
  EXPECT_TRUE(is<Fenced>(fence(1, true)));
  EXPECT_EQ(refusal(fence(1, false)), ErrorCode::kCancelled);
  ask(open_of(1));
  EXPECT_EQ(refusal(sequence), ErrorCode::kCancelled);
}

TEST_F(InboundTest, WhatIsForgottenCannotGoOn) {
  inbound->counted(open(1), now);
  advance(options.remember);
  EXPECT_EQ(inbound->known_count(), 0u);
  EXPECT_TRUE(is<Refused>(fence(1, false))) << "its pages may have another owner";
  EXPECT_TRUE(is<Fenced>(fence(1, true)));
}

TEST_F(InboundTest, AFenceThatIsRepeatedGetsTheOneAnswer) {
  open(1);
  fence(1, true, {{0, 1}});
  const auto again = fence(1, true, {{0, 1}});
  reopened(0, 2);
  EXPECT_TRUE(is<Fenced>(again));
  EXPECT_EQ(inbound->open_count(), 0u);
}

TEST_F(InboundTest, AnOpenThatComesAfterItsFenceIsRefused) {
  inbound->forget(kPeer, 1, now);
  ask(open_of(1));
  EXPECT_EQ(refusal(sequence), ErrorCode::kCancelled);
  open(2);
  inbound->forget(kPeer, 2, now);
  EXPECT_EQ(inbound->open_count(), 0u);
  EXPECT_EQ(region->uses, 0u);
  EXPECT_EQ(pushed<DisarmImmediate>().size(), 1u);
}

// -- our own fences ------------------------------------------------------------------------------

TEST_F(InboundTest, ALeaseThatEndsIsFencedWithEveryCardAndKeyThenEnds) {
  open(1);
  advance(10s);
  EXPECT_EQ(pushed<ReopenInbound>().size(), 2u);
  EXPECT_EQ(rekeys.size(), 2u) << "an initiator that goes on must not find its way in";
  EXPECT_EQ(region->uses, 1u);
  reopen_all();
  EXPECT_EQ(region->uses, 1u);
  rekey_all();
  EXPECT_THAT(broken, testing::ElementsAre(1u));
  EXPECT_EQ(region->uses, 0u);
  EXPECT_EQ(inbound->open_count(), 0u);
  EXPECT_EQ(refusal(fence(1, false)), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(refusal(fin(1)), ErrorCode::kCancelled);
}

TEST_F(InboundTest, AQuestionDuringOurOwnFenceIsAnsweredAfterIt) {
  for (bool final : {true, false}) {
    const TransferId id = final ? 1 : 2;
    open(id);
    inbound->peer_down(kPeer, {ErrorCode::kPeerLeft, "silent"}, now);
    const auto asked = fence(id, final);
    EXPECT_FALSE(answers.contains(asked));
    reopen_all();
    rekey_all();
    EXPECT_TRUE(final ? is<Fenced>(asked) : is<Refused>(asked));
  }
}

TEST_F(InboundTest, AFenceOfTheInitiatorThatTurnsIntoOursIsAnsweredToo) {
  open(1);
  const auto asked = fence(1, false, {{0, 1}});
  advance(10s);
  reopened(0, 2);
  EXPECT_EQ(refusal(asked), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(broken, testing::ElementsAre(1u));
  EXPECT_EQ(region->uses, 0u);
}

TEST_F(InboundTest, APeerThatIsDownLosesItsTransfersAndNoOtherDoes) {
  open(1);
  const auto counted = open(2);
  open(3, kPeer + 1);
  inbound->counted(counted, now);
  inbound->peer_down(kPeer, {ErrorCode::kPeerLeft, "left"}, now);
  reopen_all();
  rekey_all();
  EXPECT_THAT(broken, testing::ElementsAre(1u));
  EXPECT_EQ(inbound->open_count(), 1u);
  EXPECT_EQ(region->uses, 1u);
}

TEST_F(InboundTest, AnExecutorIsLetInForAsLongAsItsAskerHereWaits) {
  waited_for = {7};
  Open question = open_of(1);
  question.shadow = 7;
  ask(question);
  EXPECT_TRUE(is<OpenOk>(sequence));
  open(2);
  EXPECT_TRUE(inbound->is_open_for(kPeer, 7));
  EXPECT_FALSE(inbound->is_open_for(kPeer + 1, 7));

  waited_for.clear();
  question.transfer = 3;  // that was asked for, and comes to it only now
  ask(question);
  EXPECT_EQ(refusal(sequence), ErrorCode::kCancelled);
  inbound->give_up(kPeer, 7, {ErrorCode::kExecutorDied, "gone"}, now);
  EXPECT_TRUE(inbound->is_open_for(kPeer, 7)) << "not fenced yet";
  reopen_all();
  rekey_all();
  EXPECT_FALSE(inbound->is_open_for(kPeer, 7));
  EXPECT_THAT(broken, testing::ElementsAre(1u));
  EXPECT_EQ(inbound->open_count(), 1u) << "what nobody asked for here goes on";
}

TEST_F(InboundTest, NothingIsKeptOfPeersThatAreGone) {
  for (Incarnation peer = kPeer; peer < kPeer + 100; ++peer) {
    open(1, peer);
    inbound->forget(peer, 2, now);
    EXPECT_EQ(inbound->known_peers(), 1u);
    inbound->peer_down(peer, {ErrorCode::kPeerDead, "dead"}, now);
    reopen_all();
    rekey_all();
    advance(options.remember);
    EXPECT_EQ(inbound->known_count(), 0u);
    EXPECT_EQ(inbound->known_peers(), 0u);
  }
}

TEST_F(InboundTest, AFenceThatThePeersEndOvertakesIsAnsweredToNobody) {
  open(1);
  const auto asked = fence(1, true, {{0, 1}});
  inbound->peer_down(kPeer, {ErrorCode::kPeerDead, "dead"}, now);
  reopen_all();
  rekey_all();
  EXPECT_FALSE(answers.contains(asked));
  EXPECT_EQ(inbound->known_peers(), 0u);
  EXPECT_EQ(inbound->open_count(), 0u);
}

TEST_F(InboundTest, ARevokeAsksEachPeerOnceThenFences) {
  open(1);
  open(2);
  open(3, kPeer + 1);
  ASSERT_TRUE(table.close("r", true));
  inbound->revoke("r", now);
  ASSERT_EQ(revokes.size(), 2u);
  EXPECT_EQ(revokes[0].second.epoch, region->epoch);
  EXPECT_TRUE(is<Fenced>(fence(1, true))) << "who obeys is fenced as it asks";
  EXPECT_TRUE(broken.empty());
  advance(options.grace_max);
  reopen_all();
  rekey_all();
  EXPECT_EQ(broken.size(), 2u);
  EXPECT_TRUE(table.remove("r"));
  EXPECT_EQ(refusal(fence(2, false)), ErrorCode::kStaleRegion);
}

TEST_F(InboundTest, ACardThatDoesNotOpenAgainIsQuietAllTheSame) {
  open(1);
  const auto asked = fence(1, true, {{0, 1}});
  inbound->reopened({0, 1, {}, Error{ErrorCode::kProvider, "gone"}}, now);
  EXPECT_TRUE(is<Fenced>(asked));
}

// -- rekeying providers --------------------------------------------------------------------------

TEST_F(InboundTest, WhereKeysGuardAFenceGivesNewKeysAndReopensNothing) {
  make(FenceKind::kRekey);
  open(1);
  const auto asked = fence(1, false, {{1, 1}});
  EXPECT_TRUE(pushed<ReopenInbound>().empty());
  ASSERT_EQ(rekeys.size(), 1u);
  EXPECT_FALSE(answers.contains(asked));
  rekey_all();
  const auto fenced = std::get<Fenced>(answers.at(asked));
  EXPECT_EQ(fenced.keys.at(0).key, 1u);
  EXPECT_EQ(fenced.keys.at(1).key, 3u);
}

TEST_F(InboundTest, OneRekeyServesEveryTransferThatHeldTheOldKey) {
  make(FenceKind::kRekey);
  open(1);
  open(2);
  open(3);
  fence(1, false, {{0, 1}});
  fence(2, false, {{0, 1}});
  EXPECT_EQ(rekeys.size(), 1u);
  rekey_all();
  EXPECT_TRUE(is<Fenced>(fence(3, false, {{0, 1}}))) << "its key is void already";
  EXPECT_TRUE(rekeys.empty());
  fence(3, false, {{0, 1}});
  EXPECT_EQ(rekeys.size(), 1u) << "now it holds the new one";
}

TEST_F(InboundTest, AKeyIsNotHandedOutWhileItsCardIsRekeyed) {
  make(FenceKind::kRekey);
  open(1);
  fence(1, true, {{0, 1}});
  open(2);
  const auto ok = std::get<OpenOk>(answers.at(sequence));
  ASSERT_EQ(ok.keys.size(), 1u);
  EXPECT_EQ(ok.keys[0].nic, 1u);
}

// -- memory --------------------------------------------------------------------------------------

TEST_F(InboundTest, WhatEndedIsForgottenAfterAWhile) {
  for (TransferId id = 1; id <= 3000; ++id) {
    if (id % 3 == 0) {
      open(id);
      fin(id);
    } else if (id % 3 == 1) {
      open(id);
      fence(id, true);
    } else {
      inbound->forget(kPeer, id, now);
    }
    advance(100ms);
  }
  EXPECT_LE(inbound->known_count(), 601u);
  advance(options.remember);
  EXPECT_EQ(inbound->known_count(), 0u);
  EXPECT_EQ(inbound->next_tick(), TimePoint::max());
  EXPECT_EQ(region->uses, 0u);
}

}  // namespace
}  // namespace penstock
