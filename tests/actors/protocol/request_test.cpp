// What well-formed requests decode to.
#include "actors/protocol/request.hpp"

#include <gtest/gtest.h>

#include "tests/actors/protocol/sample_requests.hpp"

namespace penstock::test {
namespace {

Request decoded(const nlohmann::json& value) {
  auto owner = std::make_shared<Bytes>(nlohmann::json::to_msgpack(value));
  auto result = decode_request(std::as_bytes(std::span(*owner)), owner);
  if (result) return *result;
  ADD_FAILURE() << value << ": " << result.error().error.message;
  return {};
}

template <class Body>
Body sample(const std::string& name) {
  for (const Sample& sample : sample_requests()) {
    if (sample.name != name) continue;
    Request request = decoded(sample.value);
    EXPECT_EQ(request.id, sample.value["id"].get<std::uint64_t>());
    if (auto* body = std::get_if<Body>(&request.body)) return *body;
  }
  ADD_FAILURE() << "no such sample, or another operation: " << name;
  return {};
}

template <class T>
std::vector<T> unpacked(const BlobList<T>& list) {
  std::vector<T> values;
  for (std::size_t i = 0; i < list.size(); ++i) values.push_back(list[i]);
  return values;
}

TEST(DecodeRequest, Hello) {
  EXPECT_EQ(sample<HelloRequest>("hello").client, "penstock-cli 0.1.0");
  EXPECT_EQ(std::get<HelloRequest>(decoded(request(1, "hello")).body).client, "");
  EXPECT_EQ(sample<HelloRequest>("hello_ring").ring, 1u);
  EXPECT_EQ(sample<HelloRequest>("hello_lease").ring, 0u);
}

TEST(DecodeRequest, Allocate) {
  auto body = sample<AllocateRequest>("allocate");
  EXPECT_EQ(body.name, "kv");
  EXPECT_EQ(body.bytes, 1u << 30);
  EXPECT_EQ(body.device, "numa0");
}

TEST(DecodeRequest, Register) {
  auto body = sample<RegisterRequest>("register");
  EXPECT_EQ(body.name, "mine");
  EXPECT_EQ(body.shared_name, "/seg");
  EXPECT_EQ(body.offset, 4096u);
  EXPECT_EQ(body.bytes, 65536u);
  EXPECT_EQ(body.device, "");
}

TEST(DecodeRequest, MemoryOfAGpu) {
  auto allocate = sample<AllocateRequest>("allocate_cuda");
  EXPECT_EQ(allocate.memory, MemoryKind::kCuda);
  EXPECT_EQ(allocate.gpu, 3u);
  EXPECT_EQ(sample<AllocateRequest>("allocate").memory, MemoryKind::kHost);
  EXPECT_FALSE(sample<AllocateRequest>("allocate").gpu);
  auto body = sample<RegisterRequest>("register_cuda");
  EXPECT_EQ(body.memory, MemoryKind::kCuda);
  EXPECT_EQ(body.ipc_handle, std::string(64, '\7'));
  EXPECT_EQ(body.offset, 512u);
  EXPECT_EQ(body.shared_name, "");
}

TEST(DecodeRequest, TheWayAndTheEventsOfATransfer) {
  auto full = sample<TransferRequest>("transfer_full");
  EXPECT_EQ(full.transfers.at(0).path, PathChoice::kStaged);
  EXPECT_EQ(full.transfers.at(0).start_after, std::string(64, '\1'));
  EXPECT_EQ(full.transfers.at(0).record_event, std::string(64, '\2'));
  EXPECT_EQ(full.transfers.at(1).path, PathChoice::kAuto);
  EXPECT_EQ(full.transfers.at(1).start_after, "");
}

TEST(DecodeRequest, ATransferOfAnotherNodeIsPassedOnAsItCame) {
  const auto whole = sample<TransferRequest>("transfer_on");
  const TransferSpec& spec = whole.transfers.at(0);
  EXPECT_EQ(spec.on, "b");
  EXPECT_EQ(spec.key, "request-81/layer-3");
  ASSERT_NE(spec.to_pass_on, nullptr);
  const auto passed_on = nlohmann::json::from_msgpack(Bytes(
      reinterpret_cast<const std::uint8_t*>(spec.to_pass_on->data()),
      reinterpret_cast<const std::uint8_t*>(spec.to_pass_on->data()) + spec.to_pass_on->size()));
  // Everything but what is the asker's: whatever a transfer may be asked for in future, too.
  nlohmann::json expected = spec_elsewhere();
  for (const char* of_the_asker : {"on", "key", "deadline_ms"}) expected.erase(of_the_asker);
  EXPECT_EQ(passed_on, transfer_request(0, {expected}));
  const Request there = decoded(passed_on);
  EXPECT_EQ(std::get<TransferRequest>(there.body).transfers.at(0).on, "");
  EXPECT_EQ(sample<TransferRequest>("transfer_full").transfers.at(0).to_pass_on, nullptr);
}

TEST(DecodeRequest, StreamsAndTheirParts) {
  const auto stream = sample<StreamRequest>("stream");
  EXPECT_EQ(stream.terms.region, "kv");
  ASSERT_EQ(stream.terms.targets.size(), 1u);
  EXPECT_EQ(stream.terms.targets[0].node, "b");
  EXPECT_EQ(stream.terms.targets[0].epoch, 7u);
  EXPECT_EQ(stream.terms.deadline_ms, 60000u);
  EXPECT_EQ(stream.terms.lane, Lane::kUrgent);
  EXPECT_EQ(stream.terms.key, "request-81");
  EXPECT_EQ(stream.terms.notify, "request-81");
  const auto append = sample<AppendRequest>("append");
  EXPECT_EQ(append.stream, 9001u);
  EXPECT_EQ(append.part, 3u);
  EXPECT_EQ(unpacked(std::get<Pages>(append.layout).source_pages),
            (std::vector<std::uint32_t>{3, 1, 2}));
  EXPECT_EQ(append.notify, "layer 3");
  EXPECT_EQ(append.start_after, std::string(64, 3));
  EXPECT_EQ(append.record_event, "");
  const auto close = sample<CloseRequest>("close");
  EXPECT_EQ(close.stream, 9001u);
  EXPECT_EQ(close.parts, 80u);
}

TEST(DecodeRequest, Release) {
  auto body = sample<ReleaseRequest>("release");
  EXPECT_EQ(body.name, "kv");
  EXPECT_TRUE(body.force);
  EXPECT_FALSE(
      std::get<ReleaseRequest>(decoded(request(1, "release", {{"name", "kv"}})).body).force);
}

TEST(DecodeRequest, QuestionsWithoutArguments) {
  sample<RegionsRequest>("regions");
  sample<NodesRequest>("nodes");
  sample<StatusRequest>("status");
}

TEST(DecodeRequest, CancelTakesIdsAsArrayOrBin) {
  std::vector<std::uint64_t> ids = {1, 2, UINT64_MAX};
  EXPECT_EQ(sample<CancelRequest>("cancel").ids, ids);
  auto body = decoded(request(1, "cancel", {{"ids", blob(ids)}})).body;
  EXPECT_EQ(std::get<CancelRequest>(body).ids, ids);
}

TEST(DecodeRequest, Transfers) {
  auto body = sample<TransfersRequest>("transfers");
  EXPECT_EQ(body.ids, (std::vector<std::uint64_t>{4, 5}));
  EXPECT_EQ(body.limit, 10u);
  auto all = std::get<TransfersRequest>(decoded(request(1, "transfers")).body);
  EXPECT_TRUE(all.ids.empty());
  EXPECT_EQ(all.limit, 1000u);
}

TEST(DecodeRequest, Fill) {
  auto body = sample<FillRequest>("fill");
  EXPECT_EQ(body.region, "kv");
  EXPECT_EQ(body.seed, 42u);
  EXPECT_EQ(body.offset, 8u);
  EXPECT_EQ(body.bytes, 64u);
}

TEST(DecodeRequest, DigestOfListedPagesAndOfARange) {
  auto listed = sample<DigestRequest>("digest");
  EXPECT_EQ(listed.region, "kv");
  EXPECT_EQ(listed.page_bytes, 4096u);
  EXPECT_EQ(unpacked(listed.pages), (std::vector<std::uint32_t>{9, 0}));
  auto range = sample<DigestRequest>("digest_all");
  EXPECT_EQ(range.offset, 64u);
  EXPECT_EQ(range.bytes, 8192u);
  EXPECT_TRUE(range.pages.empty());
}

TEST(DecodeRequest, Subscribe) {
  auto body = sample<SubscribeRequest>("subscribe");
  EXPECT_EQ(body.topics, (std::vector<std::string>{"transfers", "notify", "members"}));
  EXPECT_EQ(body.since, std::optional<std::uint64_t>(0));
  auto plain = std::get<SubscribeRequest>(decoded(request(1, "subscribe")).body);
  EXPECT_TRUE(plain.topics.empty());
  EXPECT_EQ(plain.since, std::nullopt);
}

TEST(DecodeTransfer, RangesAndDefaults) {
  auto body = sample<TransferRequest>("transfer_ranges");
  ASSERT_EQ(body.transfers.size(), 1u);
  const TransferSpec& spec = body.transfers[0];
  EXPECT_EQ(spec.direction, Direction::kWrite);
  EXPECT_EQ(spec.region, "kv");
  ASSERT_EQ(spec.targets.size(), 1u);
  EXPECT_EQ(spec.targets[0].node, "b");
  EXPECT_EQ(spec.targets[0].epoch, 0u);
  EXPECT_EQ(spec.deadline_ms, 0u);
  EXPECT_EQ(spec.lane, Lane::kBulk);
  EXPECT_EQ(spec.weight, 1u);
  EXPECT_EQ(spec.key, "");
  EXPECT_EQ(spec.notify, "");
  const auto& ranges = std::get<Ranges>(spec.layout).ranges;
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0].destination_offset, 4096u);
  EXPECT_EQ(ranges[2].source_offset, 9216u);
  EXPECT_EQ(ranges[2].length, 64u);
}

TEST(DecodeTransfer, PagesWithOneStrideLeftToItsDefault) {
  const auto body = sample<TransferRequest>("transfer_pages");
  const auto& pages = std::get<Pages>(body.transfers.at(0).layout);
  EXPECT_EQ(pages.row_bytes, 65536u);
  EXPECT_EQ(pages.rows, 1u);
  EXPECT_EQ(pages.source_stride, 131072u);
  EXPECT_EQ(pages.destination_stride, 65536u);
  EXPECT_EQ(unpacked(pages.source_pages), (std::vector<std::uint32_t>{3, 1, 2}));
  EXPECT_EQ(unpacked(pages.destination_pages), (std::vector<std::uint32_t>{0, 1, 7}));
  ASSERT_EQ(pages.bases.size(), 2u);
  EXPECT_EQ(pages.bases[1].source, 1048576u);
  EXPECT_EQ(pages.bases[1].destination, 2097152u);
}

TEST(DecodeTransfer, PagesApplyOnceAtTheStartWithoutBases) {
  auto layout = pages_layout();
  layout.erase("bases");
  auto body = decoded(transfer_request(1, {transfer_spec(layout)})).body;
  const auto& pages = std::get<Pages>(std::get<TransferRequest>(body).transfers.at(0).layout);
  ASSERT_EQ(pages.bases.size(), 1u);
  EXPECT_EQ(pages.bases[0].source, 0u);
  EXPECT_EQ(pages.bases[0].destination, 0u);
}

TEST(DecodeTransfer, StridedWithEveryOption) {
  auto body = sample<TransferRequest>("transfer_full");
  ASSERT_EQ(body.transfers.size(), 2u);
  const TransferSpec& spec = body.transfers[0];
  EXPECT_EQ(spec.direction, Direction::kRead);
  ASSERT_EQ(spec.targets.size(), 2u);
  EXPECT_EQ(spec.targets[0].epoch, 7u);
  EXPECT_EQ(spec.targets[1].node, "");
  EXPECT_EQ(spec.targets[1].region, "own");
  EXPECT_EQ(spec.deadline_ms, 1500u);
  EXPECT_EQ(spec.lane, Lane::kUrgent);
  EXPECT_EQ(spec.weight, 10u);
  EXPECT_EQ(spec.key, "request-81/layer-3");
  EXPECT_EQ(spec.notify, std::string("\0\xff\n", 3));
  const auto& pages = std::get<Pages>(spec.layout);
  EXPECT_EQ(pages.row_bytes, 256u);
  EXPECT_EQ(pages.rows, 4u);
  EXPECT_EQ(pages.source_pitch, 1024u);
  EXPECT_EQ(pages.destination_pitch, 512u);
  EXPECT_EQ(pages.source_stride, 4096u);
  EXPECT_EQ(pages.destination_stride, 2048u);
  ASSERT_EQ(pages.bases.size(), 2u);
  EXPECT_EQ(pages.bases[1].source, 65536u);
  EXPECT_EQ(pages.bases[1].destination, 32768u);
}

TEST(DecodeTransfer, ListsLieInTheMessageAndKeepItAlive) {
  auto value = transfer_request(1, {transfer_spec(pages_layout())});
  auto owner = std::make_shared<Bytes>(nlohmann::json::to_msgpack(value));
  auto message = std::as_bytes(std::span(*owner));
  std::weak_ptr<Bytes> alive = owner;
  auto result = decode_request(message, std::move(owner));
  ASSERT_TRUE(result);
  {
    const auto& spec = std::get<TransferRequest>(result->body).transfers[0];
    const std::byte* list = std::get<Pages>(spec.layout).source_pages.bytes().data();
    EXPECT_GE(list, message.data());
    EXPECT_LT(list, message.data() + message.size());
  }
  EXPECT_FALSE(alive.expired());
  *result = Request{};
  EXPECT_TRUE(alive.expired());
}

TEST(DecodeTransfer, EmptyListsAreEmptyWork) {
  nlohmann::json layout = {{"kind", "ranges"}, {"ranges", blob<std::uint64_t>({})}};
  auto body = decoded(transfer_request(1, {transfer_spec(layout)})).body;
  EXPECT_TRUE(
      std::get<Ranges>(std::get<TransferRequest>(body).transfers.at(0).layout).ranges.empty());
}

}  // namespace
}  // namespace penstock::test
