#include "actors/wire/message.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace penstock {
namespace {

using testing::HasSubstr;

FabricAddress address(std::string_view text) {
  FabricAddress result;
  for (const char c : text) result.push_back(static_cast<std::byte>(c));
  return result;
}

Message message(std::variant<Question, Answer> body) {
  Message m;
  m.source = 0xfedcba9876543210;
  m.destination = 7;
  m.sequence = 1ull << 40;
  m.sent_ms = 1ull << 41;
  m.sent_after_ms = 1ull << 42;
  m.body = std::move(body);
  return m;
}

// Every kind, with values that differ from the defaults in every field.
std::vector<Message> one_of_each() {
  const std::vector<DeviceCards> devices = {
      {"gpu0", {{0, 1, address("a0")}, {1, 70000, address("a1")}}}, {"numa0", {}}};
  const std::vector<RegionKey> keys = {{0, 1ull << 47, ~0ull}, {3, 0, 9}};
  const Open open{5,
                  "kv",
                  6,
                  Direction::kRead,
                  1ull << 42,
                  1ull << 41,
                  300,
                  5000,
                  "mine",
                  "note",
                  "gpu3",
                  16,
                  InlineBytes{{std::byte{7}, std::byte{0}}},
                  true};
  return {message(Question(Hello{"node-a", devices})),
          message(Question(open)),
          message(Question(Fin{5, "gpu1"})),
          message(Question(Fence{5, "gpu1", {{2, 3}, {65535, 0xffffffff}}, false})),
          message(Question(Revoke{"kv", 8})),
          message(Question(DrainNode{60000})),
          message(Answer(HelloOk{devices})),
          message(Answer(OpenOk{"gpu1", 0u, 4, 1ull << 33, keys})),
          message(Answer(OpenOk{"gpu1", std::nullopt, 4, 1ull << 33, {}})),
          message(Answer(FinOk{})),
          message(Answer(Fenced{devices[0].cards, keys})),
          message(Answer(AlreadyDone{})),
          message(Answer(Revoked{})),
          message(Answer(DrainBegun{})),
          message(Answer(Refused{{ErrorCode::kStaleRegion, "region 'kv' is gone"}})),
          message(Answer(OpenOk{"gpu1",
                                std::nullopt,
                                4,
                                1ull << 33,
                                {},
                                LentStaging{262144, {{5, 0}, {0xffffffff, 1ull << 40}}, keys},
                                true,
                                true})),
          message(Answer(Fenced{{}, {}, LentStaging{4096, {{1, 2}}, keys}})),
          message(Question(
              Delegate{5, "trainer", true, 60000, 9000, 8000, InlineBytes{{std::byte{9}}}})),
          message(Question(StopDelegated{5})),
          message(Question(LookAtDelegated{{5, 1ull << 40}})),
          message(Question(DelegatedEnded{5,
                                          6,
                                          1,
                                          true,
                                          7,
                                          1ull << 33,
                                          8,
                                          "direct",
                                          {{"eth0", 1ull << 33, 8}},
                                          {ErrorCode::kExecutorDied, "gone"},
                                          InlineBytes{{std::byte{1}}},
                                          true})),
          message(Answer(Delegated{77})),
          message(Answer(StopSeen{true})),
          message(Answer(DelegatedSeen{{{"running", 1ull << 33, 1ull << 34}}})),
          message(Answer(EndSeen{}))};
}

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// [1, 2, 3, 4, [0, [kind, body]]]: a question as another version might write it.
std::vector<std::byte> question(int version, int kind, std::initializer_list<int> body) {
  std::vector<std::byte> bytes = bytes_of({0x95, version, 2, 3, 4, 0x92, 0, 0x92, kind});
  for (const int value : body) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(Message, EveryKindComesBackAsItWasWritten) {
  for (const Message& m : one_of_each()) {
    auto bytes = encode(m);
    ASSERT_TRUE(bytes) << bytes.error().message;
    auto back = decode_message(*bytes);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->body.index(), m.body.index());
    // Equal again when written again: together with the checks below no field can be lost.
    EXPECT_EQ(*encode(*back), *bytes);
  }
}

TEST(Message, EveryFieldOfAnOpenArrives) {
  auto back = decode_message(*encode(one_of_each()[1]));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->source, 0xfedcba9876543210);
  EXPECT_EQ(back->destination, 7u);
  EXPECT_EQ(back->sequence, 1ull << 40);
  const Open& open = std::get<Open>(std::get<Question>(back->body));
  EXPECT_EQ(open.transfer, 5u);
  EXPECT_EQ(open.region, "kv");
  EXPECT_EQ(open.epoch, 6u);
  EXPECT_EQ(open.direction, Direction::kRead);
  EXPECT_EQ(open.end, 1ull << 42);
  EXPECT_EQ(open.bytes, 1ull << 41);
  EXPECT_EQ(open.chunks, 300u);
  EXPECT_EQ(open.lease_ms, 5000u);
  EXPECT_EQ(open.initiator_region, "mine");
  EXPECT_EQ(open.notify, "note");
}

TEST(Message, EveryFieldOfTheOtherKindsArrives) {
  const std::vector<Message> all = one_of_each();
  const auto question_at = [&](int i) {
    return std::get<Question>(decode_message(*encode(all[i]))->body);
  };
  const auto answer_at = [&](int i) {
    return std::get<Answer>(decode_message(*encode(all[i]))->body);
  };
  const Hello hello = std::get<Hello>(question_at(0));
  EXPECT_EQ(hello.node, "node-a");
  ASSERT_EQ(hello.devices.size(), 2u);
  EXPECT_EQ(hello.devices[0].device, "gpu0");
  EXPECT_EQ(hello.devices[0].cards.at(1).nic, 1);
  EXPECT_EQ(hello.devices[0].cards.at(1).generation, 70000u);
  EXPECT_EQ(hello.devices[0].cards.at(1).address, address("a1"));
  const Fin fin = std::get<Fin>(question_at(2));
  EXPECT_EQ(fin.transfer, 5u);
  EXPECT_EQ(fin.device, "gpu1");
  const Fence fence = std::get<Fence>(question_at(3));
  EXPECT_EQ(fence.transfer, 5u);
  EXPECT_EQ(fence.device, "gpu1");
  EXPECT_EQ(fence.cards.at(1).nic, 65535);
  EXPECT_EQ(fence.cards.at(1).generation, 0xffffffffu);
  EXPECT_FALSE(fence.final);
  const Revoke revoke = std::get<Revoke>(question_at(4));
  EXPECT_EQ(revoke.region, "kv");
  EXPECT_EQ(revoke.epoch, 8u);
  EXPECT_EQ(std::get<HelloOk>(answer_at(6)).devices.size(), 2u);
  const OpenOk ok = std::get<OpenOk>(answer_at(7));
  EXPECT_EQ(ok.device, "gpu1");
  EXPECT_EQ(ok.immediate, 0u);
  EXPECT_EQ(ok.epoch, 4u);
  EXPECT_EQ(ok.region_bytes, 1ull << 33);
  EXPECT_EQ(ok.keys.at(0).base, 1ull << 47);
  EXPECT_EQ(ok.keys.at(0).key, ~0ull);
  EXPECT_EQ(std::get<OpenOk>(answer_at(8)).immediate, std::nullopt);
  const Fenced fenced = std::get<Fenced>(answer_at(10));
  EXPECT_EQ(fenced.cards.size(), 2u);
  EXPECT_EQ(fenced.keys.at(1).nic, 3);
  const Refused refused = std::get<Refused>(answer_at(14));
  EXPECT_EQ(refused.error.code, ErrorCode::kStaleRegion);
  EXPECT_EQ(refused.error.message, "region 'kv' is gone");
}

TEST(Message, EveryFieldOfAThirdPartyTransferArrives) {
  const std::vector<Message> all = one_of_each();
  const auto again = [](const Message& m) { return decode_message(*encode(m))->body; };
  for (const Message& m : all) {
    const auto body = again(m);
    const auto* question = std::get_if<Question>(&body);
    const auto* answer = std::get_if<Answer>(&body);
    if (const auto* part = question ? std::get_if<Delegate>(question) : nullptr) {
      EXPECT_EQ(part->transfer, 5u);
      EXPECT_EQ(part->client, "trainer");
      EXPECT_TRUE(part->admin);
      EXPECT_EQ(part->deadline_ms, 60000u);
      EXPECT_EQ(part->total, 9000u);
      EXPECT_EQ(part->offset, 8000u);
      EXPECT_EQ(part->part.bytes.size(), 1u);
    }
    if (const auto* end = question ? std::get_if<DelegatedEnded>(question) : nullptr) {
      EXPECT_EQ(end->transfer, 5u);
      EXPECT_EQ(end->executed_as, 6u);
      EXPECT_EQ(end->state, 1u);
      EXPECT_TRUE(end->unreachable);
      EXPECT_EQ(end->remote_epoch, 7u);
      EXPECT_EQ(end->bytes, 1ull << 33);
      EXPECT_EQ(end->writes, 8u);
      EXPECT_EQ(end->path, "direct");
      EXPECT_EQ(end->cards.at(0).name, "eth0");
      EXPECT_EQ(end->error.code, ErrorCode::kExecutorDied);
      EXPECT_EQ(end->landed.bytes.size(), 1u);
      EXPECT_TRUE(end->landed_truncated);
    }
    if (const auto* seen = answer ? std::get_if<DelegatedSeen>(answer) : nullptr) {
      EXPECT_EQ(seen->transfers.at(0).state, "running");
      EXPECT_EQ(seen->transfers.at(0).total_bytes, 1ull << 34);
    }
  }
}

TEST(Message, FieldsThatAnOlderVersionDoesNotHaveKeepTheirDefaults) {
  auto open = decode_message(question(
      kWireVersion - 1, 1, {0x9d, 5, 0xa1, 'r', 0, 1, 0, 0, 0, 0, 0xa0, 0xa0, 0xa0, 0, 0xc4, 0}));
  ASSERT_TRUE(open) << open.error().message;
  EXPECT_FALSE(std::get<Open>(std::get<Question>(open->body)).staged);
  const auto written = decode_message(*encode(one_of_each()[1]));
  EXPECT_TRUE(std::get<Open>(std::get<Question>(written->body)).staged);
  EXPECT_EQ(open->sent_ms, 0u);
  EXPECT_EQ(open->sent_after_ms, 0u);
}

TEST(Message, AnOpenSaysOfWhichStreamItIsAPart) {
  Open open = std::get<Open>(std::get<Question>(one_of_each()[1].body));
  open.stream = 1ull << 40;
  open.part = 79;
  const auto back = decode_message(*encode(message(Question(open))));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(std::get<Open>(std::get<Question>(back->body)).stream, 1ull << 40);
  EXPECT_EQ(std::get<Open>(std::get<Question>(back->body)).part, 79u);
}

TEST(Message, AnOpenSaysWhatItsOwnerWaitsFor) {
  Open open = std::get<Open>(std::get<Question>(one_of_each()[1].body));
  open.shadow = 1ull << 40;
  const auto back = decode_message(*encode(message(Question(open))));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(std::get<Open>(std::get<Question>(back->body)).shadow, 1ull << 40);
}

TEST(Message, FieldsThatANewerVersionAddedAreIgnored) {
  // Fin{5, "g"} with a third field, in a message with an eighth one.
  for (int version = kWireVersion - 1; version <= static_cast<int>(kWireVersion) + 1; ++version) {
    auto bytes = question(version, 2, {0x93, 5, 0xa1, 'g', 0x81, 1, 2});
    bytes[0] = static_cast<std::byte>(0x98);
    for (const std::byte each : bytes_of({8, 9, 0xc0})) bytes.push_back(each);
    auto back = decode_message(bytes);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(std::get<Fin>(std::get<Question>(back->body)).device, "g");
    EXPECT_EQ(back->sent_ms, 8u);
    EXPECT_EQ(back->sent_after_ms, 9u);
  }
}

TEST(Message, AnUnknownKindIsAnErrorThatNamesIt) {
  auto back = decode_message(question(kWireVersion - 1, 77, {0x90}));
  ASSERT_FALSE(back);
  EXPECT_THAT(back.error().message, HasSubstr("unknown kind 77"));
}

TEST(Message, AVersionTooFarAwayIsRefusedAsSuchWhateverFollows) {
  for (const int version : {0, static_cast<int>(kWireVersion) + 2, 100}) {
    auto back = decode_message(question(version, 77, {0xc0}));
    ASSERT_FALSE(back);
    EXPECT_THAT(back.error().message, HasSubstr("version " + std::to_string(version)));
  }
  EXPECT_FALSE(decode_message(bytes_of({0x91, 0xce, 0xff, 0xff, 0xff, 0xff})));
}

TEST(Message, BytesAfterTheEndAreAnError) {
  auto bytes = *encode(one_of_each()[2]);
  bytes.push_back(std::byte{0});
  auto back = decode_message(bytes);
  ASSERT_FALSE(back);
  EXPECT_THAT(back.error().message, HasSubstr("1 bytes after the end"));
}

TEST(Message, EveryTruncationIsAnError) {
  for (const Message& m : one_of_each()) {
    const auto bytes = *encode(m);
    for (std::size_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(decode_message(std::span(bytes).first(size))) << size;
  }
}

TEST(Message, WrongTypesAndMissingFieldsSayWhere) {
  auto missing = decode_message(question(kWireVersion - 1, 2, {0x91, 5}));
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("1 fields of 2"));
  auto negative = decode_message(question(kWireVersion - 1, 2, {0x92, 0xff, 0xa1, 'g'}));
  ASSERT_FALSE(negative);
  EXPECT_THAT(negative.error().message, HasSubstr("field 4: field 0: expected a whole number"));
  EXPECT_FALSE(
      decode_message(question(kWireVersion - 1, 2, {0x92, 5, 0xc4, 1, 'g'})));  // binary for text
  EXPECT_FALSE(decode_message(
      question(kWireVersion - 1, 2, {0x82, 0, 5, 1, 0xa1, 'g'})));  // a map for an array
  EXPECT_FALSE(decode_message(question(kWireVersion - 1, 2, {0xc0})));
}

TEST(Message, ANumberAboveItsFieldIsRefusedNotCutOff) {
  // Fence card nic 65536 does not fit 16 bits.
  auto back = decode_message(
      question(kWireVersion - 1, 3, {0x94, 5, 0xa1, 'g', 0x91, 0x92, 0xce, 0, 1, 0, 0, 1, 0xc3}));
  ASSERT_FALSE(back);
  EXPECT_THAT(back.error().message, HasSubstr("65536 is above 65535"));
}

TEST(Message, ADirectionThatDoesNotExistIsRefused) {
  auto back = decode_message(question(
      kWireVersion - 1, 1, {0x9d, 5, 0xa1, 'r', 0, 2, 0, 0, 0, 0, 0xa0, 0xa0, 0xa0, 0, 0xc4, 0}));
  ASSERT_FALSE(back);
  EXPECT_THAT(back.error().message, HasSubstr("enumeration"));
}

TEST(Message, AnErrorCodeOfANewerVersionBecomesInternal) {
  // Answer Refused{["NEW", "w"]}.
  auto back = decode_message(bytes_of({0x95, kWireVersion - 1, 2, 3, 4, 0x92, 1, 0x92, 6, 0x91,
                                       0x92, 0xa3, 'N', 'E', 'W', 0xa1, 'w'}));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(std::get<Refused>(std::get<Answer>(back->body)).error.code, ErrorCode::kInternal);
}

TEST(Message, AListThatClaimsMoreThanTheMessageHoldsCostsNothing) {
  EXPECT_FALSE(decode_message(bytes_of({0xdd, 0xff, 0xff, 0xff, 0xff})));
  EXPECT_FALSE(decode_message(bytes_of({0xdf, 0xff, 0xff, 0xff, 0xff})));
  EXPECT_FALSE(decode_message(bytes_of({0xc6, 0xff, 0xff, 0xff, 0xff})));
  const std::vector<std::byte> deep(kMaxMessageBytes, std::byte{0x91});
  EXPECT_FALSE(decode_message(deep));
}

TEST(Message, WhatIsTooLongIsNotSentAndNamed) {
  auto text = encode(message(Question(Fin{1, std::string(5000, 'x')})));
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(text.error().message, HasSubstr("Fin message: a text of 5000"));
  Hello hello{"n", {{"gpu0", {}}}};
  for (int i = 0; i < 300; ++i) hello.devices[0].cards.push_back({0, 1, FabricAddress(64)});
  auto whole = encode(message(Question(hello)));
  ASSERT_FALSE(whole);
  EXPECT_THAT(whole.error().message, HasSubstr("at most 16368"));
}

TEST(Message, AMessageAboveTheLimitIsRefused) {
  EXPECT_FALSE(decode_message(std::vector<std::byte>(kMaxMessageBytes + 1, std::byte{0xc0})));
}

TEST(Message, DamagedMessagesCostAtMostAnError) {
  std::mt19937_64 random(42);
  const std::vector<Message> all = one_of_each();
  for (int round = 0; round < 20000; ++round) {
    auto bytes = *encode(all[random() % all.size()]);
    for (auto changes = 1 + random() % 4; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (auto back = decode_message(bytes)) {
      // What was accepted is a message: it can be written again.
      EXPECT_TRUE(encode(*back));
    }
  }
}

}  // namespace
}  // namespace penstock
