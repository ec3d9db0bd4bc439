// Small writes that travel inside their Open, at both ends.
#include <cstring>

#include "actors/device/inbound.hpp"
#include "tests/actors/device/outbound_fixture.hpp"
#include "tests/transport/poller/rig.hpp"
#include "transport/packing/packed_buffer.hpp"

namespace penstock {
namespace {

class OutboundInline : public OutboundTest {
 protected:
  /// As admitted(), from memory that is there.
  Admitted small(TransferId id, std::size_t chunks = 4) {
    Admitted a = admitted(id, chunks);
    memory->bytes()[0] = std::byte{42};
    (*a.local).region()->memory = memory;
    return a;
  }
  const Open& last_open() const { return std::get<Open>(asked.back().question); }
  std::shared_ptr<test::HeapMemory> memory = std::make_shared<test::HeapMemory>(1 << 20);
};

TEST_F(OutboundInline, ASmallWriteTravelsWithItsQuestionAndIsDoneWithTheAnswer) {
  opening(small(1));
  std::vector<std::byte> region(1000);
  EXPECT_EQ(unpack(last_open().data.bytes, region).value(), 400u);
  EXPECT_EQ(region[0], std::byte{42});
  EXPECT_EQ(last_open().chunks, 0u);
  answer(AlreadyDone{});
  expect_end(1, Outcome::kDone, Remote::kQuiet);
  EXPECT_EQ(ended.at(1).path, "inline");
  EXPECT_EQ(ended.at(1).bytes, 400u);
  EXPECT_TRUE(commands.empty()) << "no card had to do with it";
}

TEST_F(OutboundInline, ReadsLongWritesAndTheUsersWordGoOverTheCards) {
  Admitted read = small(1);
  read.direction = Direction::kRead;
  opening(std::move(read));
  EXPECT_TRUE(last_open().data.bytes.empty());
  opening(small(2, 100));  // 10,000 bytes
  EXPECT_TRUE(last_open().data.bytes.empty());
  Admitted never = small(3);
  never.packing = PackingMode::kNever;
  opening(std::move(never));
  EXPECT_TRUE(last_open().data.bytes.empty());
  options.inline_bytes = 0;
  make();
  opening(small(4));
  EXPECT_TRUE(last_open().data.bytes.empty());
}

TEST_F(OutboundInline, StoppedBeforeTheAnswerItIsFencedSinceItMayHaveLanded) {
  opening(small(1));
  outbound->cancel(1, now);
  EXPECT_TRUE(ended.empty());
  ASSERT_EQ(questions<Fence>().size(), 1u);
  EXPECT_TRUE(questions<Fence>()[0].final);
  answer(fenced());
  expect_end(1, Outcome::kCancelled, Remote::kQuiet);
}

TEST_F(OutboundInline, WithoutAnAnswerItIsFencedAndWithoutThatUnreachable) {
  opening(small(1));
  answer(error(ErrorCode::kPeerUnreachable));
  ASSERT_EQ(questions<Fence>().size(), 1u);
  answer(error(ErrorCode::kPeerUnreachable));
  expect_end(1, Outcome::kFailed, Remote::kUnreachable);
}

TEST_F(OutboundInline, RefusedItHasFailedAndNothingWasWritten) {
  opening(small(1));
  answer(Refused{{ErrorCode::kNotFound, "no such region"}});
  expect_end(1, Outcome::kFailed, Remote::kQuiet);
  EXPECT_EQ(ended.at(1).error.code, ErrorCode::kNotFound);
}

TEST_F(OutboundInline, AnOwnerWhoCannotTakeItSoGetsItOverTheCards) {
  opening(small(2));
  answer(Refused{{ErrorCode::kBusy, "too long ago"}});
  EXPECT_TRUE(last_open().data.bytes.empty());
  opening(small(1));
  answer(Refused{{ErrorCode::kUnsupported, "on a GPU"}});
  EXPECT_TRUE(last_open().data.bytes.empty());
  answer(OpenOk{"numa0", 5, 9, 1 << 20, {{0, 0, 11}, {1, 0, 22}}});
  EXPECT_EQ(state(1), State::kRunning);
}

class InboundInline : public testing::Test {
 protected:
  InboundInline() {
    options.device = "numa0";
    options.remember_most = 2;
    region->name = "r";
    region->bytes = 1000;
    region->memory = memory;
    region->set_registered(nullptr, {});
    table.publish(region);
    inbound = std::make_unique<Inbound>(
        options, std::vector<InboundCard>{{0, 1, {}}}, table, nullptr,
        Inbound::Port{
            .command = [this](PollerCommand) { ++commands; },
            .answer = [this](Incarnation, std::uint64_t, Answer a) { answers.push_back(a); },
            .revoke = [](Incarnation, Revoke) {},
            .notify = [this](Notification n) { notified.push_back(std::move(n)); },
            .rekey = [](std::shared_ptr<Region>, std::uint16_t) {},
            .broken = [](Incarnation, TransferId, Error) {},
        });
  }
  Open question(TransferId id, std::uint64_t at, std::byte value) {
    Open open;
    open.transfer = id;
    open.region = "r";
    open.bytes = 10;
    open.end = at + 10;
    open.lease_ms = 10'000;
    open.data.bytes.resize(200);
    PackedWriter writer(open.data.bytes);
    const std::vector<std::byte> page(10, value);
    writer.add(at, page);
    open.data.bytes.resize(writer.finish());
    return open;
  }
  void open(const Open& question, std::optional<Clock::duration> age = 0ms) {
    std::optional<TimePoint> asked_at;
    if (age) asked_at = now - *age;
    inbound->open(5, "a", ++sequence, question, {}, asked_at, now);
  }
  ErrorCode refusal() const { return std::get<Refused>(answers.back()).error.code; }
  bool done() const { return std::holds_alternative<AlreadyDone>(answers.back()); }

  TimePoint now{1h};
  std::uint64_t sequence = 0;
  Inbound::Options options;
  RegionTable table;
  std::shared_ptr<test::HeapMemory> memory = std::make_shared<test::HeapMemory>(1000);
  std::shared_ptr<Region> region = std::make_shared<Region>();
  int commands = 0;
  std::vector<Answer> answers;
  std::vector<Notification> notified;
  std::unique_ptr<Inbound> inbound;
};

TEST_F(InboundInline, TheDataIsWrittenBeforeTheAnswerAndTheSubscribersAreTold) {
  Open with_word = question(1, 100, std::byte{7});
  with_word.notify = "word";
  with_word.stream = 9;
  with_word.part = 3;
  open(with_word);
  EXPECT_TRUE(done());
  EXPECT_EQ(memory->bytes()[100], std::byte{7});
  EXPECT_EQ(memory->bytes()[99], std::byte{0});
  ASSERT_EQ(notified.size(), 1u);
  EXPECT_EQ(notified[0].bytes, 10u);
  EXPECT_EQ(notified[0].stream, 9u);
  EXPECT_EQ(notified[0].part, 3u);
  EXPECT_EQ(inbound->open_count(), 0u);
  EXPECT_EQ(region->uses.load(), 0u);
  EXPECT_EQ(commands, 0) << "nothing more comes that a poller would have to look for";
}

TEST_F(InboundInline, ARepetitionWritesNothingAgain) {
  open(question(1, 100, std::byte{7}));
  memory->bytes()[100] = std::byte{8};  // the pages have another use now
  open(question(1, 100, std::byte{7}));
  EXPECT_TRUE(done());
  EXPECT_EQ(memory->bytes()[100], std::byte{8});
  // Its answer may be lost: it is not forgotten at once, however many come.
  for (TransferId id = 2; id < 10; ++id) open(question(id, 200, std::byte{1}));
  open(question(1, 100, std::byte{7}), std::nullopt);
  EXPECT_TRUE(done());
  // Nor when so many came since that it is forgotten: the Peer says that it may be a repetition.
  now += 1s;
  open(question(10, 200, std::byte{1}));
  EXPECT_EQ(inbound->known_count(), 2u);
  inbound->open(5, "a", ++sequence, question(1, 100, std::byte{7}), {}, TimePoint::min(), now);
  EXPECT_EQ(refusal(), ErrorCode::kBusy);
  EXPECT_EQ(memory->bytes()[100], std::byte{8});
}

TEST_F(InboundInline, AfterItsLeaseItIsRefusedAndLeavesNothing) {
  open(question(1, 100, std::byte{7}), 10'001ms);
  EXPECT_EQ(refusal(), ErrorCode::kBusy);
  EXPECT_EQ(memory->bytes()[100], std::byte{0});
  EXPECT_EQ(inbound->known_count(), 0u);
  EXPECT_EQ(region->uses.load(), 0u);
  Open again = question(1, 100, std::byte{7});  // as its initiator asks then
  again.data.bytes.clear();
  open(again);
  EXPECT_TRUE(std::holds_alternative<OpenOk>(answers.back()));
  open(question(2, 100, std::byte{7}), 10'000ms);
  EXPECT_TRUE(done());
}

TEST_F(InboundInline, AfterItsFenceItIsRefused) {
  inbound->forget(5, 1, now);
  open(question(1, 100, std::byte{7}));
  EXPECT_EQ(refusal(), ErrorCode::kCancelled);
  EXPECT_EQ(memory->bytes()[100], std::byte{0});
}

TEST_F(InboundInline, AfterItsFenceItIsRefusedAlsoWhenThatIsForgottenBeforeItsLeaseEnds) {
  inbound->forget(5, 1, now);
  now += options.remember + 1ms;
  inbound->tick(now);
  ASSERT_EQ(inbound->known_count(), 0u);
  Open late = question(1, 100, std::byte{7});
  late.lease_ms = 600'000;
  open(late, options.remember + 2ms);  // the fence came after it was sent
  EXPECT_EQ(refusal(), ErrorCode::kBusy);
  EXPECT_EQ(memory->bytes()[100], std::byte{0});
  open(late, options.remember);
  EXPECT_TRUE(done());
}

TEST_F(InboundInline, ItsQuestionAloneIsRefusedWhenItIsOldTooUnlessNothingIsKnownOfThat) {
  Open plain = question(1, 100, std::byte{7});
  plain.data.bytes.clear();
  open(plain, 10'001ms);
  EXPECT_EQ(refusal(), ErrorCode::kBusy);
  open(question(2, 100, std::byte{7}), std::nullopt);  // of version 3, which sends again without
  EXPECT_EQ(refusal(), ErrorCode::kUnsupported);
  open(plain, std::nullopt);
  EXPECT_TRUE(std::holds_alternative<OpenOk>(answers.back()));
  open(plain, 10'001ms);
  EXPECT_TRUE(std::holds_alternative<OpenOk>(answers.back())) << "it is open: the same answer";
}

TEST_F(InboundInline, WhatDoesNotFitIsRefused) {
  open(question(1, 995, std::byte{7}));
  EXPECT_EQ(refusal(), ErrorCode::kOutOfRange);
  Open lies = question(2, 0, std::byte{7});
  lies.bytes = 11;
  open(lies);
  EXPECT_EQ(refusal(), ErrorCode::kInvalidArgument);
  Open broken = question(3, 0, std::byte{7});
  broken.data.bytes[0] = std::byte{0};
  open(broken);
  EXPECT_EQ(refusal(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock
