// The initiator's side of transfers with memory of a GPU: which way they take, and what they are
// told.
#include "tests/actors/device/gpu_memory_double.hpp"
#include "tests/actors/device/inbound_fixture.hpp"
#include "tests/actors/device/outbound_fixture.hpp"

namespace penstock {
namespace {

/// An event that is done when the test says so.
class EventDouble final : public GpuEvent {
 public:
  int gpu() const override { return 2; }
  Result<GpuEventHandle> ipc_handle() const override { return GpuEventHandle{}; }
  Result<bool> done() const override { return is_done; }
  void* native() const override { return nullptr; }
  bool is_done = false;
};

class OutboundStaged : public OutboundTest {
 protected:
  OutboundStaged() {
    options.device = "gpu2";
    options.staging_bytes = 4096;
    make();
  }
  /// `reached`: by a card.
  std::shared_ptr<RegionUse> on_gpu(const std::string& name, bool reached = false) {
    if (!table.use(name)) {
      auto region = std::make_shared<Region>();
      region->name = name;
      region->bytes = 1 << 20;
      region->memory = std::make_shared<test::GpuMemoryDouble>(1 << 20);
      region->set_registered(nullptr,
                             {reached ? std::make_shared<HandedKey>(1) : nullptr, nullptr});
      table.publish(region);
    }
    return std::make_shared<RegionUse>(std::move(*table.use(name)));
  }
  Admitted from_gpu(TransferId id, bool reached = false) {
    Admitted a = admitted(id);
    a.local = on_gpu(reached ? "reached" : "gpu", reached);
    return a;
  }
  static OpenOk staged_ok(bool on_gpu = true) {
    OpenOk answer;
    answer.device = "gpu2";
    answer.epoch = 9;
    answer.region_bytes = 1 << 20;
    answer.staging = LentStaging{4096, {{7, 0}, {8, 4096}}, {{0, 0, 111}}};
    answer.staged = true;
    answer.on_gpu = on_gpu;
    return answer;
  }
  static OpenOk direct_ok(bool on_gpu) {
    OpenOk answer{"gpu2", std::nullopt, 9, 1 << 20, {{0, 0, 11}, {1, 0, 22}}};
    answer.on_gpu = on_gpu;
    return answer;
  }
  const Open& open_question() { return questions_.emplace_back(questions<Open>().back()); }
  std::deque<Open> questions_;
};

TEST_F(OutboundStaged, MemoryThatNoCardReachesIsSentInSlotsOnly) {
  opening(from_gpu(1));
  EXPECT_TRUE(open_question().staged);
  EXPECT_GT(open_question().pack_slots, 0u);
  EXPECT_EQ(open_question().chunks, 0u);
  EXPECT_TRUE(open_question().data.bytes.empty()) << "the processor cannot read it";
  answer(staged_ok(false));
  const auto start = pushed<StartTransfer>().at(0);
  ASSERT_TRUE(start.packing);
  EXPECT_TRUE(start.packing->only);
  EXPECT_EQ(start.packing->slots.size(), 2u);
  ASSERT_EQ(start.paths.size(), 1u) << "only where the slots can be reached";
  EXPECT_EQ(start.paths[0].staging_key, 111u);
  outbound->idle(complete(1), now);
  EXPECT_EQ(ended.at(1).path, "staged");
}

TEST_F(OutboundStaged, AnOwnersGpuThatNoCardReachesMakesAHostTransferStaged) {
  opening(admitted(1, 100));
  EXPECT_FALSE(open_question().staged);
  answer(staged_ok());
  ASSERT_EQ(pushed<StartTransfer>().size(), 1u);
  EXPECT_TRUE(pushed<StartTransfer>()[0].packing->only);
}

TEST_F(OutboundStaged, LongChunksAreCutToWhatASlotTakes) {
  Admitted a = from_gpu(1);
  const std::vector<Range> one{{0, 0, 100'000}};
  a.plan = *Plan::make(Ranges{BlobList<Range>::of(one)}, {});
  ASSERT_EQ(a.plan->chunks(), 1u);
  opening(std::move(a));
  answer(staged_ok());
  const auto plan = pushed<StartTransfer>().at(0).plan;
  EXPECT_LE(plan->limits().max_chunk_bytes, 4096u - 48);
  EXPECT_EQ(plan->bytes(), 100'000u);
  EXPECT_GE(plan->chunks(), 25u);
}

TEST_F(OutboundStaged, WaitsForSlotsUntilItsDeadline) {
  Admitted a = from_gpu(1);
  a.deadline = now + 1s;
  opening(std::move(a));
  for (int i = 0; i < 3; ++i) {
    const auto asked_before = questions<Open>().size();
    answer(Refused{{ErrorCode::kBusy, "all are lent"}});
    EXPECT_TRUE(ended.empty());
    advance(options.retry_backoff);
    EXPECT_EQ(questions<Open>().size(), asked_before + 1);
  }
  answer(Refused{{ErrorCode::kBusy, "all are lent"}});
  advance(2s);
  answer(Refused{{ErrorCode::kBusy, "all are lent"}});
  ASSERT_TRUE(ended.contains(1));
  EXPECT_NE(ended.at(1).state, Outcome::kDone);
}

TEST_F(OutboundStaged, WhereItsOwnerIsBusyItAsksAgainAtOnceThenWithPatienceAndExpires) {
  Admitted a = from_gpu(1);
  a.deadline = now + 1s;
  opening(std::move(a));
  const auto asked_before = questions<Open>().size();
  answer(Refused{{ErrorCode::kBusy, "under way for too long"}});
  advance(0ms);
  EXPECT_EQ(questions<Open>().size(), asked_before + 1);
  answer(Refused{{ErrorCode::kBusy, "all are lent"}});
  advance(options.retry_backoff - 1ms);
  EXPECT_EQ(questions<Open>().size(), asked_before + 1);
  advance(1ms);
  EXPECT_EQ(questions<Open>().size(), asked_before + 2);
  now += 1s;  // the answer is heard before the clock is looked at
  answer(Refused{{ErrorCode::kBusy, "all are lent"}});
  ASSERT_TRUE(ended.contains(1));
  EXPECT_EQ(ended.at(1).state, Outcome::kExpired);
}

TEST_F(OutboundStaged, AfterAFenceItGoesOnWithTheSlotsThatItIsLentAgain) {
  opening(from_gpu(1));
  answer(staged_ok());
  outbound->idle(failed(1), now);
  Fenced again = fenced();
  again.keys.clear();
  again.staging = LentStaging{4096, {{17, 0}}, {{0, 0, 222}}};
  answer(again);
  const auto resumed = pushed<ResumeTransfer>();
  ASSERT_EQ(resumed.size(), 1u);
  ASSERT_TRUE(resumed[0].packing);
  EXPECT_TRUE(resumed[0].packing->only);
  EXPECT_EQ(resumed[0].packing->slots.at(0).immediate, 17u);
  EXPECT_EQ(resumed[0].paths.at(0).staging_key, 222u);
}

TEST_F(OutboundStaged, WithoutSlotsAfterAFenceItEndsAndNeverGoesDirectly) {
  opening(from_gpu(1));
  answer(staged_ok());
  outbound->idle(failed(1), now);
  answer(fenced());
  EXPECT_TRUE(pushed<ResumeTransfer>().empty());
  answer(Fenced{});
  ASSERT_TRUE(ended.contains(1));
  EXPECT_EQ(ended.at(1).state, Outcome::kFailed);
}

TEST_F(OutboundStaged, AReadIntoItIsRefusedWithWhatToDo) {
  Admitted a = from_gpu(1);
  a.direction = Direction::kRead;
  opening(std::move(a));
  ASSERT_TRUE(ended.contains(1));
  EXPECT_EQ(ended.at(1).error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(ended.at(1).error.message, HasSubstr("write"));
}

// Each of them ends while it is opened: as a call within a call they would leave no stack.
TEST_F(OutboundStaged, AnyNumberThatWaitAndCannotGoEndOneAfterTheOther) {
  constexpr TransferId kMany = 65'000;
  for (TransferId id = 1; id <= kMany; ++id) {
    Admitted a = from_gpu(id);
    a.direction = Direction::kRead;
    outbound->admit(std::move(a), now);
  }
  EXPECT_TRUE(ended.empty());
  outbound->peer_up("b", kPeer, now);
  EXPECT_EQ(ended.size(), kMany);
  EXPECT_EQ(outbound->size(), 0u);
}

TEST_F(OutboundStaged, WithoutStagingMemoryItSaysSo) {
  options.staging_bytes = 0;
  make();
  opening(from_gpu(1));
  ASSERT_TRUE(ended.contains(1));
  EXPECT_THAT(ended.at(1).error.message, HasSubstr("staging_bytes"));
}

TEST_F(OutboundStaged, GpudirectIsNeverReplacedByAnotherWay) {
  Admitted ours = from_gpu(1);
  ours.path = PathChoice::kGpuDirect;
  opening(std::move(ours));
  ASSERT_TRUE(ended.contains(1));
  EXPECT_THAT(ended.at(1).error.message, HasSubstr("FI_HMEM"));

  Admitted theirs = admitted(2, 100);
  theirs.path = PathChoice::kGpuDirect;
  opening(std::move(theirs));
  answer(staged_ok());
  ASSERT_TRUE(ended.contains(2));
  EXPECT_THAT(ended.at(2).error.message, HasSubstr("'theirs'"));

  Admitted neither = admitted(3, 100);
  neither.path = PathChoice::kGpuDirect;
  opening(std::move(neither));
  answer(direct_ok(false));
  ASSERT_TRUE(ended.contains(3));
  EXPECT_EQ(ended.at(3).error.code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(pushed<StartTransfer>().empty());
}

TEST_F(OutboundStaged, StagedIsTakenOnRequestBetweenHostMemoriesToo) {
  Admitted a = admitted(1);
  a.path = PathChoice::kStaged;
  opening(std::move(a));
  EXPECT_TRUE(open_question().staged);
  answer(staged_ok(false));
  ASSERT_EQ(pushed<StartTransfer>().size(), 1u);
  EXPECT_TRUE(pushed<StartTransfer>()[0].packing->only);
}

TEST_F(OutboundStaged, WhatACardReachesGoesDirectlyAndIsDoneWhenItsOwnerMadeItVisible) {
  opening(from_gpu(1, true));
  EXPECT_FALSE(open_question().staged);
  answer(direct_ok(true));
  ASSERT_EQ(pushed<StartTransfer>().size(), 1u);
  EXPECT_FALSE(pushed<StartTransfer>()[0].packing);
  outbound->idle(complete(1), now);
  EXPECT_EQ(state(1), State::kFinishing) << "kernels there may not see it yet";
  answer(FinOk{});
  EXPECT_EQ(ended.at(1).path, "gpudirect");
}

TEST_F(OutboundStaged, NothingIsAskedBeforeTheEventIsDone) {
  auto event = std::make_shared<EventDouble>();
  Admitted a = from_gpu(1);
  a.start_after = event;
  opening(std::move(a));
  advance(10ms);
  EXPECT_TRUE(questions<Open>().empty());
  event->is_done = true;
  advance(1ms);
  EXPECT_EQ(questions<Open>().size(), 1u);
}

TEST_F(OutboundStaged, AnEventThatIsNeverDoneEndsWithTheDeadline) {
  Admitted a = from_gpu(1);
  a.start_after = std::make_shared<EventDouble>();
  a.deadline = now + 100ms;
  opening(std::move(a));
  advance(200ms);
  ASSERT_TRUE(ended.contains(1));
  EXPECT_EQ(ended.at(1).state, Outcome::kExpired);
}

TEST_F(OutboundStaged, AKernelThatFailsEndsACopyWithItsError) {
  Admitted a = from_gpu(1);
  a.node = "a";
  a.copy_target = on_gpu("other");
  outbound->admit(std::move(a), now);
  ASSERT_EQ(copies.size(), 1u);
  outbound->copied(1, 0, 0, now, Error{ErrorCode::kProvider, "no kernel"});
  ASSERT_TRUE(ended.contains(1));
  EXPECT_EQ(ended.at(1).state, Outcome::kFailed);
  EXPECT_EQ(ended.at(1).error.message, "no kernel");
  EXPECT_EQ(ended.at(1).path, "local_kernel");
}

}  // namespace
}  // namespace penstock
