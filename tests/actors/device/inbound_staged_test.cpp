// The owner's side of transfers that cross staging slots only.
#include "tests/actors/device/gpu_memory_double.hpp"
#include "tests/actors/device/inbound_fixture.hpp"

namespace penstock {
namespace {

class InboundStaged : public InboundTest {
 protected:
  InboundStaged() {
    staging = std::make_shared<Region>();
    staging->name = ".staging";
    staging->bytes = 32 * 4096;
    staging->set_registered(nullptr, {key(), key()});
    pool = std::make_shared<StagingPool>(staging, 4096, 0, 32);
    make(FenceKind::kReopenInbound);
    gpu = std::make_shared<Region>();
    gpu->name = "g";
    gpu->bytes = 1000;
    gpu->memory = std::make_shared<test::GpuMemoryDouble>(1000);
    gpu->set_registered(nullptr, {nullptr, nullptr});
    table.publish(gpu);
  }
  static Open to_gpu(TransferId id) {
    Open question = open_of(id);
    question.region = "g";
    return question;
  }
  Answer& ask(const Open& question, std::vector<LinkId> links = {9}) {
    return InboundTest::ask(question, std::move(links));
  }
  void disarm_all() {
    for (const auto& each : pushed<DisarmPacked>())
      if (each.tag != 0) inbound->disarmed(each.tag, now);
  }
  std::shared_ptr<Region> staging;
  std::shared_ptr<Region> gpu;
};

TEST_F(InboundStaged, MemoryThatNoCardReachesIsLentSlotsWithoutBeingAskedForThem) {
  const auto& ok = std::get<OpenOk>(ask(to_gpu(1)));
  EXPECT_TRUE(ok.staged);
  EXPECT_TRUE(ok.on_gpu);
  EXPECT_TRUE(ok.keys.empty()) << "nothing may go directly";
  EXPECT_FALSE(ok.immediate) << "slots have immediates of their own";
  ASSERT_TRUE(ok.staging);
  EXPECT_EQ(ok.staging->slots.size(), 8u);
  EXPECT_EQ(pushed<ArmPacked>().at(0).region, gpu->memory);
}

TEST_F(InboundStaged, AnInitiatorWhoseMemoryNoCardReachesIsLentSlotsToo) {
  Open question = open_of(1);
  question.staged = true;
  const auto& ok = std::get<OpenOk>(ask(question));
  EXPECT_TRUE(ok.staged);
  EXPECT_FALSE(ok.on_gpu);
  EXPECT_TRUE(ok.keys.empty());
  EXPECT_TRUE(ok.staging);
}

TEST_F(InboundStaged, WhenAllSlotsAreLentTheInitiatorIsToAskAgain) {
  TransferId id = 0;
  pool = std::make_shared<StagingPool>(staging, 4096, 0, 3);
  make(FenceKind::kReopenInbound);
  while (std::holds_alternative<OpenOk>(ask(to_gpu(++id)))) ASSERT_LT(id, 100u);
  EXPECT_EQ(refusal(sequence), ErrorCode::kBusy);
  EXPECT_EQ(inbound->open_count(), id - 1);
  fin(1);
  EXPECT_TRUE(std::holds_alternative<OpenOk>(ask(to_gpu(id)))) << "asked again";
}

TEST_F(InboundStaged, ReadsAreRefusedWithWhatToDo) {
  Open question = to_gpu(1);
  question.direction = Direction::kRead;
  ask(question);
  EXPECT_EQ(refusal(sequence), ErrorCode::kUnsupported);
  EXPECT_NE(std::get<Refused>(answers.at(sequence)).error.message.find("write"), std::string::npos);
}

TEST_F(InboundStaged, WithoutStagingMemoryOrLinksItIsRefused) {
  ask(to_gpu(1), {});
  EXPECT_EQ(refusal(sequence), ErrorCode::kUnsupported);
  pool = nullptr;
  make(FenceKind::kReopenInbound);
  ask(to_gpu(2));
  EXPECT_EQ(refusal(sequence), ErrorCode::kUnsupported);
  EXPECT_EQ(inbound->open_count(), 0u);
}

TEST_F(InboundStaged, DataWithTheQuestionIsRefusedAndTheRestAskedWithoutIt) {
  Open question = to_gpu(1);
  question.data.bytes.resize(64);
  ask(question);
  EXPECT_EQ(refusal(sequence), ErrorCode::kUnsupported);
  EXPECT_TRUE(std::holds_alternative<OpenOk>(ask(to_gpu(1))));
}

TEST_F(InboundStaged, AfterAFenceItGoesOnInTheSameSlotsUnderOtherImmediates) {
  const auto before = std::get<OpenOk>(ask(to_gpu(1))).staging->slots;
  const auto asked = fence(1, false);
  EXPECT_FALSE(answers.contains(asked)) << "something may be scattered still";
  disarm_all();
  ASSERT_TRUE(is<Fenced>(asked));
  const auto& fenced = std::get<Fenced>(answers.at(asked));
  EXPECT_TRUE(fenced.keys.empty());
  ASSERT_TRUE(fenced.staging);
  ASSERT_EQ(fenced.staging->slots.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(fenced.staging->slots[i].offset, before[i].offset);
    EXPECT_NE(fenced.staging->slots[i].immediate, before[i].immediate);
  }
  ASSERT_EQ(pushed<ArmPacked>().size(), 2u);
  EXPECT_EQ(pushed<ArmPacked>()[1].slots.size(), before.size());
  EXPECT_EQ(pushed<ArmPacked>()[1].credit_links, std::vector<LinkId>{9});
  EXPECT_EQ(pool->lent(), before.size());
}

TEST_F(InboundStaged, TheFinalFenceBringsTheSlotsBack) {
  ask(to_gpu(1));
  fence(1, true);
  disarm_all();
  EXPECT_EQ(pool->lent(), 0u);
  EXPECT_EQ(inbound->open_count(), 0u);
}

}  // namespace
}  // namespace penstock
