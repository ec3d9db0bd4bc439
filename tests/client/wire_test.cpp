// What the client writes is what the service reads, and the other way round.
#include "client/cpp/wire.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "actors/protocol/reply.hpp"
#include "actors/protocol/request.hpp"

namespace penstock::client {
namespace {

using testing::ElementsAre;

penstock::Request decoded(const Message& message) {
  auto owner = std::make_shared<Message>(message);
  auto bytes = std::as_bytes(std::span(*owner));
  auto request = decode_request(bytes, owner);
  if (!request) throw std::runtime_error(request.error().error.message);
  return *std::move(request);
}

penstock::TransferSpec decoded_spec(const TransferSpec& spec) {
  auto request = decoded(encode_transfer(7, {{spec}}));
  EXPECT_EQ(request.id, 7u);
  return std::get<TransferRequest>(request.body).transfers.at(0);
}

template <class T>
std::vector<T> values(const BlobList<T>& list) {
  std::vector<T> all;
  for (std::size_t i = 0; i < list.size(); ++i) all.push_back(list[i]);
  return all;
}

TEST(Wire, TheServiceReadsEveryFieldOfATransfer) {
  TransferSpec spec{.direction = Direction::kRead,
                    .region = "here",
                    .targets = {{"n1", "there", 5}, {"", "own"}},
                    .layout = Ranges{{{1, 2, 3}, {UINT64_MAX, 0, 9}}},
                    .deadline_ms = 1500,
                    .lane = Lane::kUrgent,
                    .weight = 12,
                    .key = "k-1",
                    .notify = std::string("\0\xff", 2)};
  auto read = decoded_spec(spec);
  EXPECT_EQ(read.direction, penstock::Direction::kRead);
  EXPECT_EQ(read.region, "here");
  ASSERT_EQ(read.targets.size(), 2u);
  EXPECT_EQ(read.targets[0].node, "n1");
  EXPECT_EQ(read.targets[0].epoch, 5u);
  EXPECT_EQ(read.targets[1].region, "own");
  EXPECT_EQ(read.deadline_ms, 1500u);
  EXPECT_EQ(read.lane, penstock::Lane::kUrgent);
  EXPECT_EQ(read.weight, 12u);
  EXPECT_EQ(read.key, "k-1");
  EXPECT_EQ(read.notify, spec.notify);
  auto ranges = values(std::get<penstock::Ranges>(read.layout).ranges);
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].destination_offset, 2u);
  EXPECT_EQ(ranges[1].source_offset, UINT64_MAX);
}

TEST(Wire, ATransferOfAnotherNodeIsAskedForAndToldAsThat) {
  auto read = decoded_spec(
      {.region = "a", .targets = {{"c", "b"}}, .layout = Ranges{{{0, 0, 8}}}, .on = "b"});
  EXPECT_EQ(read.on, "b");
  EXPECT_NE(read.to_pass_on, nullptr);
  penstock::TransferResult result;
  result.on = "b";
  result.on_as = 77;
  const auto back = read_transfer_result(decode_message(transfer_event(result, 1)));
  EXPECT_EQ(back.on, "b");
  EXPECT_EQ(back.on_as, 77u);
}

TEST(Wire, PagesWithoutStridesLieSideBySide) {
  std::vector<std::uint32_t> from{7, 3}, to{0, 4000000000};
  auto read = decoded_spec({.region = "a",
                            .targets = {{"n", "b"}},
                            .layout = Pages{.page_bytes = 4096,
                                            .destination_stride = 8192,
                                            .source_pages = from,
                                            .destination_pages = to,
                                            .bases = {{0, 1}, {2, 3}}}});
  const auto& pages = std::get<penstock::Pages>(read.layout);
  EXPECT_EQ(pages.row_bytes, 4096u);
  EXPECT_EQ(pages.rows, 1u);
  EXPECT_EQ(pages.source_stride, 4096u);
  EXPECT_EQ(pages.destination_stride, 8192u);
  EXPECT_THAT(values(pages.source_pages), ElementsAre(7, 3));
  EXPECT_THAT(values(pages.destination_pages), ElementsAre(0, 4000000000));
  ASSERT_EQ(pages.bases.size(), 2u);
  EXPECT_EQ(pages.bases[1].destination, 3u);
}

TEST(Wire, StridedRowsAndStridesDefaultToDense) {
  std::vector<std::uint32_t> page{1};
  auto read = decoded_spec({.region = "a",
                            .targets = {{"n", "b"}},
                            .layout = Strided{.row_bytes = 64,
                                              .rows = 8,
                                              .source_pitch = 256,
                                              .source_pages = page,
                                              .destination_pages = page}});
  const auto& pages = std::get<penstock::Pages>(read.layout);
  EXPECT_EQ(pages.row_bytes, 64u);
  EXPECT_EQ(pages.rows, 8u);
  EXPECT_EQ(pages.source_pitch, 256u);
  EXPECT_EQ(pages.destination_pitch, 64u);
  EXPECT_EQ(pages.source_stride, 2048u);
  EXPECT_EQ(pages.destination_stride, 512u);
}

TEST(Wire, PageListsOfDifferentLengthAreRefusedBeforeTheyAreSent) {
  std::vector<std::uint32_t> two{1, 2}, one{1};
  TransferSpec spec{
      .region = "a",
      .targets = {{"n", "b"}},
      .layout = Pages{.page_bytes = 1, .source_pages = two, .destination_pages = one}};
  EXPECT_THROW(encode_transfer(1, {{spec}}), Error);
}

TEST(Wire, TheServiceReadsThePagesOfADigest) {
  std::vector<std::uint32_t> pages{9, 8};
  auto request =
      decoded(encode_request(1, "digest",
                             {{"region", "a"},
                              {"page_bytes", 64},
                              {"pages", packed(std::span<const std::uint32_t>(pages))}}));
  EXPECT_THAT(values(std::get<DigestRequest>(request.body).pages), ElementsAre(9, 8));
}

TEST(Wire, TheServiceReadsIds) {
  std::vector<std::uint64_t> ids{UINT64_MAX, 2};
  auto request =
      decoded(encode_request(1, "cancel", {{"ids", packed(std::span<const std::uint64_t>(ids))}}));
  EXPECT_EQ(std::get<CancelRequest>(request.body).ids, ids);
}

TEST(Wire, AFailedTransferKeepsWhatTheServiceSaidOfIt) {
  penstock::TransferResult failed;
  failed.id = 77;
  failed.node = "n1";
  failed.state = penstock::TransferResult::State::kFailed;
  failed.remote = penstock::TransferResult::Remote::kUnreachable;
  failed.bytes = std::uint64_t{5} << 32;
  failed.cards = {{"eth0", {10, 2}}};
  failed.error = {ErrorCode::kPeerLeft, "n1 died"};
  failed.landed = {0, 4096, 100};
  failed.landed_truncated = true;
  auto event = read_event(decode_message(transfer_event(failed, 12)));
  EXPECT_EQ(event.sequence, 12u);
  const auto& result = std::get<TransferResult>(event.body);
  EXPECT_EQ(result.id, 77u);
  EXPECT_EQ(result.state, TransferResult::State::kFailed);
  EXPECT_EQ(result.remote, TransferResult::Remote::kUnreachable);
  EXPECT_EQ(result.bytes, std::uint64_t{5} << 32);
  ASSERT_EQ(result.cards.size(), 1u);
  EXPECT_EQ(result.cards[0].writes, 2u);
  EXPECT_EQ(result.error_code, "PEER_LEFT");
  EXPECT_EQ(result.error_message, "n1 died");
  EXPECT_THAT(result.landed, ElementsAre(Range{0, 4096, 100}));
  EXPECT_TRUE(result.landed_truncated);
}

TEST(Wire, MessagesThatAreNoneAreErrorsAndNeverMore) {
  auto code = [](std::vector<std::uint8_t> message) {
    try {
      decode_message(message);
    } catch (const Error& error) {
      return error.code();
    }
    return std::string("none");
  };
  EXPECT_EQ(code({}), "INTERNAL");
  EXPECT_EQ(code({0xc1}), "INTERNAL");
  EXPECT_EQ(code({0x01}), "INTERNAL");                                    // no map
  EXPECT_EQ(code({0xdf, 0xff, 0xff, 0xff, 0xff}), "INTERNAL");            // cut off
  EXPECT_EQ(code({0xc6, 0xff, 0xff, 0xff, 0xff, 0}), "INTERNAL");         // BIN cut off
  EXPECT_EQ(code(std::vector<std::uint8_t>(1 << 20, 0x91)), "INTERNAL");  // nested arrays
  EXPECT_EQ(code({0x80}), "none");
}

TEST(Wire, FieldsOfTheWrongTypeAreErrors) {
  EXPECT_THROW(read_event(Json{{"event", 1}}), Error);
  EXPECT_THROW(read_transfer_result(Json{{"state", "done"}, {"id", "x"}}), Error);
  EXPECT_THROW(read_transfer_result(Json{{"state", "done"}, {"cards", {1}}}), Error);
  EXPECT_THROW(read_transfer_result(Json{{"state", "done"}, {"landed", Json::binary({1, 2})}}),
               Error);
  EXPECT_THROW(read_region(Json::array()), Error);
}

TEST(Wire, TextIsJsonWhateverTheBytes) {
  EXPECT_EQ(to_text(Json{{"a", Json::binary({0, 255})}}), R"({"a":"00ff"})");
  auto replaced = to_text(Json{{"a", "\xff"}});
  EXPECT_TRUE(Json::accept(replaced));
}

}  // namespace
}  // namespace penstock::client
