// What malformed requests are told: each error names the key, what was expected and what was found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "actors/protocol/request.hpp"
#include "tests/actors/protocol/sample_requests.hpp"

namespace penstock::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

BadRequest refused(const Bytes& message) {
  auto result = decode_request(std::as_bytes(std::span(message)), nullptr);
  if (!result) return result.error();
  ADD_FAILURE() << "was not refused";
  return {};
}

BadRequest refused(const json& value) { return refused(json::to_msgpack(value)); }

std::string words(const json& value) { return refused(value).error.message; }
std::string words(const Bytes& message) { return refused(message).error.message; }

bool decodes(const json& value) {
  Bytes message = json::to_msgpack(value);
  return decode_request(std::as_bytes(std::span(message)), nullptr).has_value();
}

json with(json value, const char* key, json field) {
  value[key] = std::move(field);
  return value;
}

json without(json value, const char* key) {
  value.erase(key);
  return value;
}

json with_layout(json layout) { return transfer_request(1, {transfer_spec(std::move(layout))}); }

json with_spec(const char* key, json field) {
  return transfer_request(1, {with(transfer_spec(ranges_layout()), key, std::move(field))});
}

// -- the message as a whole ----------------------------------------------------------------------

TEST(RefusedMessage, Empty) { EXPECT_THAT(words(Bytes{}), HasSubstr("empty")); }

TEST(RefusedMessage, NotAMap) {
  EXPECT_EQ(words(json::array({1, 2})), "the request: expected a map, found an array of 2");
}

TEST(RefusedMessage, NeverUsedByte) { EXPECT_THAT(words(Bytes{0xc1}), HasSubstr("not msgpack")); }

TEST(RefusedMessage, Truncated) {
  Bytes message = json::to_msgpack(request(1, "hello", {{"client", "someone"}}));
  message.pop_back();
  EXPECT_THAT(words(message), HasSubstr("truncated"));
}

TEST(RefusedMessage, TrailingBytes) {
  Bytes message = json::to_msgpack(request(7, "hello"));
  message.push_back(0x00);
  BadRequest bad = refused(message);
  EXPECT_EQ(bad.error.message, "1 bytes follow the request's map; send one map per message");
  EXPECT_EQ(bad.id, 7u);
}

TEST(RefusedMessage, NestedTooDeep) {
  Bytes message(100'000, 0x91);  // [[[[...
  EXPECT_THAT(words(message), HasSubstr("nested deeper than 8"));
}

TEST(RefusedMessage, DeclaredSizesThatTheMessageCannotHold) {
  for (std::uint8_t header : {0xdd, 0xdf})  // array 32, map 32
    EXPECT_THAT(words(Bytes{header, 0xff, 0xff, 0xff, 0xff}), HasSubstr("has only 5 bytes"));
  for (std::uint8_t header : {0xc6, 0xdb})  // bin 32, str 32
    EXPECT_THAT(words(Bytes{header, 0xff, 0xff, 0xff, 0xff, 0x00}), HasSubstr("truncated"));
}

TEST(RefusedMessage, NestedSizesAreCountedTogether) {
  // Eight arrays inside one another, each alone small enough for the message.
  Bytes message;
  for (int i = 0; i < 8; ++i) message.insert(message.end(), {0xdc, 0x00, 0x20});
  message.resize(40);
  EXPECT_THAT(words(message), HasSubstr("declares at least"));
}

TEST(RefusedMessage, MoreValuesThanAnyRequestNeeds) {
  json ids = json::array();
  for (int i = 0; i < (1 << 20); ++i) ids.push_back(1);
  EXPECT_THAT(words(request(1, "cancel", {{"ids", ids}})), HasSubstr("send lists as BIN"));
}

TEST(RefusedMessage, ExtensionTypes) {
  json value = request(3, "hello");
  value["client"] = json::binary({1, 2}, 5);  // with a subtype: ext
  EXPECT_THAT(words(value), HasSubstr("extension type"));
}

TEST(RefusedMessage, DuplicateKeys) {
  // {"v":1,"id":1,"op":"hello","id":2}
  Bytes message = {0x84, 0xa1, 'v', 1,   0xa2, 'i', 'd',  1,   0xa2, 'o', 'p',
                   0xa5, 'h',  'e', 'l', 'l',  'o', 0xa2, 'i', 'd',  2};
  BadRequest bad = refused(message);
  EXPECT_EQ(bad.error.message, "the key 'id' appears twice in the request");
  EXPECT_EQ(bad.id, 1u);
}

TEST(RefusedMessage, KeysThatAreNotStrings) {
  EXPECT_THAT(words(Bytes{0x81, 0x01, 0x02}), HasSubstr("keys are str, found the integer 1"));
}

TEST(RefusedMessage, TooManyKeys) {
  json value = request(1, "hello");
  for (int i = 0; i < 30; ++i) value["key" + std::to_string(i)] = i;
  EXPECT_THAT(words(value), HasSubstr("33 keys"));
}

TEST(RefusedMessage, KeepsItsIdWhereverItStands) {
  EXPECT_EQ(refused(request(99, "hello", {{"typo", 1}})).id, 99u);
  json value = request(98, "hello");
  value["zzz"] = json::array({json::array({1.5})});
  EXPECT_EQ(refused(value).id, 98u);
  EXPECT_EQ(refused(json{{"deep", {{"id", 5}}}}).id, 0u) << "an id below the top is not the id";
}

// -- version, id, op -----------------------------------------------------------------------------

TEST(RefusedRequest, OtherVersion) {
  BadRequest bad = refused(with(request(4, "hello"), "v", 2));
  EXPECT_EQ(bad.error.code, ErrorCode::kUnsupported);
  EXPECT_EQ(bad.error.message, "v: the request speaks protocol version 2, this service speaks 1");
  EXPECT_EQ(bad.id, 4u);
}

TEST(RefusedRequest, MissingVersionIdOrOp) {
  json whole = request(1, "hello");
  EXPECT_EQ(words(without(whole, "v")), "v is missing");
  EXPECT_EQ(words(without(whole, "id")), "id is missing");
  EXPECT_EQ(words(without(whole, "op")), "op is missing");
}

TEST(RefusedRequest, UnknownOpIsNamedWithTheKnownOnes) {
  EXPECT_THAT(words(request(1, "trasnfer")),
              AllOf(HasSubstr("op: expected one of hello, "), HasSubstr("found 'trasnfer'")));
}

TEST(RefusedRequest, UnknownKeyIsNamedWithTheKnownOnes) {
  json value = request(1, "allocate", {{"name", "a"}, {"byte", 1}});
  EXPECT_EQ(words(value),
            "unknown key 'byte' in the request; known are v, id, op, memory, gpu, export, name, "
            "bytes, device, allow");
}

TEST(RefusedRequest, KeyOfAnotherOperation) {
  EXPECT_THAT(words(request(1, "hello", {{"bytes", 1}})), HasSubstr("unknown key 'bytes'"));
}

TEST(RefusedRequest, ClientBytesAreQuotedPrintable) {
  EXPECT_THAT(words(request(1, "hello", {{"a\n\x80", 1}})), HasSubstr("'a\\x0a\\x80'"));
  EXPECT_THAT(words(request(1, std::string(100, 'x').c_str())), HasSubstr("xxx...'"));
}

// -- types and bounds ----------------------------------------------------------------------------

TEST(RefusedField, MissingRequiredKeyOfEachOperation) {
  const std::map<std::string, std::vector<const char*>> required = {
      {"allocate", {"name", "bytes"}},
      {"register", {"name", "shared_name", "bytes"}},
      {"release", {"name"}},
      {"transfer_pages", {"transfers"}},
      {"cancel", {"ids"}},
      {"fill", {"region"}},
      {"digest", {"region", "page_bytes"}}};
  for (const Sample& sample : sample_requests()) {
    auto found = required.find(sample.name);
    if (found == required.end()) continue;
    for (const char* key : found->second)
      EXPECT_EQ(words(without(sample.value, key)), std::string(key) + " is missing");
  }
}

TEST(RefusedField, WrongTypeNamesKeyExpectedAndFound) {
  json allocate = request(1, "allocate", {{"name", "a"}, {"bytes", 1}});
  EXPECT_EQ(words(with(allocate, "bytes", "1")),
            "bytes: expected an unsigned integer, found the str '1'");
  EXPECT_EQ(words(with(allocate, "bytes", -3)),
            "bytes: expected an unsigned integer, found the negative integer -3");
  EXPECT_EQ(words(with(allocate, "bytes", 1.5)),
            "bytes: expected an unsigned integer, found the float 1.5");
  EXPECT_EQ(words(with(allocate, "bytes", std::numeric_limits<double>::quiet_NaN())),
            "bytes: expected an unsigned integer, found the float nan");
  EXPECT_EQ(words(with(allocate, "bytes", nullptr)),
            "bytes: expected an unsigned integer, found nil");
  EXPECT_EQ(words(with(allocate, "name", json::object())), "name: expected a str, found a map");
  EXPECT_EQ(words(request(1, "release", {{"name", "a"}, {"force", 1}})),
            "force: expected true or false, found the integer 1");
  EXPECT_EQ(words(request(1, "cancel", {{"ids", json::array({1, true})}})),
            "ids[1]: expected an unsigned integer, found true");
}

TEST(RefusedField, Names) {
  json allocate = request(1, "allocate", {{"name", "a"}, {"bytes", 1}});
  EXPECT_EQ(words(with(allocate, "name", "")), "name: expected a name, found ''");
  EXPECT_EQ(words(with(allocate, "name", "a b")),
            "name: a name is made of A-Z a-z 0-9 . _ / -, found 'a b'");
  EXPECT_EQ(words(with(allocate, "name", std::string(129, 'a'))),
            "name: expected at most 128 bytes, found 129");
  EXPECT_TRUE(decodes(with(allocate, "name", std::string(128, 'a'))));
}

TEST(RefusedField, ZeroBytesOrPages) {
  EXPECT_THAT(words(request(1, "allocate", {{"name", "a"}, {"bytes", 0}})),
              HasSubstr("bytes: expected 1 to"));
  EXPECT_THAT(words(request(1, "digest", {{"region", "a"}, {"page_bytes", 0}})),
              HasSubstr("page_bytes: expected 1 to"));
}

TEST(RefusedField, NoIdsToCancel) {
  EXPECT_EQ(words(request(1, "cancel", {{"ids", json::array()}})),
            "ids: expected at least one, found none");
}

TEST(RefusedField, MoreIdsThanOneReplyMayList) {
  std::vector<std::uint64_t> ids(100'000, 1);
  EXPECT_TRUE(decodes(request(1, "transfers", {{"ids", blob(ids)}})));
  ids.push_back(1);
  EXPECT_EQ(words(request(1, "transfers", {{"ids", blob(ids)}})),
            "ids: expected at most 100000 of them, found 100001");
}

TEST(RefusedField, UnknownTopic) {
  EXPECT_EQ(words(request(1, "subscribe", {{"topics", json::array({"notify", "member"})}})),
            "topics[1]: expected one of transfers, notify, members, found 'member'");
}

// -- transfers -----------------------------------------------------------------------------------

TEST(RefusedTransfer, ErrorsSayWhere) {
  json bad = full_spec();
  bad["targets"][1]["nod"] = "b";
  EXPECT_EQ(words(transfer_request(1, {full_spec(), bad})),
            "unknown key 'nod' in transfers[1].targets[1]; known are node, region, epoch");
  EXPECT_EQ(words(with_layout(with(pages_layout(), "page_bytes", true))),
            "transfers[0].layout.page_bytes: expected an unsigned integer, found true");
}

TEST(RefusedTransfer, MissingParts) {
  for (const char* key : {"direction", "region", "targets", "layout"})
    EXPECT_EQ(words(transfer_request(1, {without(transfer_spec(ranges_layout()), key)})),
              std::string("transfers[0].") + key + " is missing");
}

TEST(RefusedTransfer, NoneOrTooMany) {
  json spec = transfer_spec(ranges_layout());
  EXPECT_EQ(words(transfer_request(1, {})), "transfers: expected 1 to 4096 of them, found 0");
  EXPECT_EQ(words(transfer_request(1, std::vector<json>(4097, spec))),
            "transfers: expected 1 to 4096 of them, found 4097");
  std::vector<json> targets(1024, {{"region", "kv"}});
  spec["targets"] = targets;
  EXPECT_TRUE(decodes(transfer_request(1, {spec, spec, spec, spec})));
  EXPECT_THAT(words(transfer_request(1, {spec, spec, spec, spec, spec})), HasSubstr("split it"));
  targets.push_back(targets[0]);
  EXPECT_EQ(words(with_spec("targets", targets)),
            "transfers[0].targets: expected 1 to 1024 of them, found 1025");
}

TEST(RefusedTransfer, UnknownWords) {
  EXPECT_EQ(words(with_spec("direction", "push")),
            "transfers[0].direction: expected one of write, read, found 'push'");
  EXPECT_EQ(words(with_spec("lane", "fast")),
            "transfers[0].lane: expected one of urgent, bulk, found 'fast'");
  EXPECT_EQ(words(with_layout(with(ranges_layout(), "kind", "list"))),
            "transfers[0].layout.kind: expected one of ranges, pages, strided, found 'list'");
  EXPECT_THAT(words(with_layout(without(ranges_layout(), "kind"))), HasSubstr("needs its kind"));
}

TEST(RefusedTransfer, Bounds) {
  EXPECT_EQ(words(with_spec("weight", 0)), "transfers[0].weight: expected 1 to 1000, found 0");
  EXPECT_THAT(words(with_spec("weight", 1001)), HasSubstr("expected 1 to 1000"));
  EXPECT_THAT(words(with_spec("deadline_ms", 1ull << 32)), HasSubstr("expected 0 to 4294967295"));
  EXPECT_EQ(words(with_spec("notify", blob(Bytes(1025)))),
            "transfers[0].notify: expected at most 1024 bytes, found 1025");
  EXPECT_THAT(words(with_layout(with(strided_layout(), "rows", 0))), HasSubstr("rows: expected 1"));
}

TEST(RefusedTransfer, ListsThatEndInsideAnElement) {
  EXPECT_EQ(words(with_layout(with(ranges_layout(), "ranges", blob(Bytes(25))))),
            "transfers[0].layout.ranges: a BIN of 25 bytes is not a whole number of (source, "
            "destination, length) u64 triples (24 bytes each)");
  EXPECT_EQ(words(with_layout(with(pages_layout(), "source_pages", blob(Bytes(6))))),
            "transfers[0].layout.source_pages: a BIN of 6 bytes is not a whole number of u32 (4 "
            "bytes each)");
  EXPECT_THAT(words(with_layout(with(pages_layout(), "bases", blob(Bytes(8))))),
              HasSubstr("u64 pairs (16 bytes each)"));
}

TEST(RefusedTransfer, ListsThatAreArrays) {
  EXPECT_EQ(words(with_layout(with(pages_layout(), "source_pages", json::array({1, 2})))),
            "transfers[0].layout.source_pages: expected a BIN of u32, found an array of 2");
}

TEST(RefusedTransfer, BasesThatAreNotPairs) {
  EXPECT_EQ(words(with_layout(with(pages_layout(), "bases", json::array({json::array({1})})))),
            "transfers[0].layout.bases[0]: expected [source, destination] as unsigned integers, "
            "found an array of 1");
  EXPECT_THAT(words(with_layout(with(pages_layout(), "bases", json::array({3})))),
              HasSubstr("found the integer 3"));
}

TEST(RefusedTransfer, KeysOfAnotherLayout) {
  EXPECT_THAT(words(with_layout(with(ranges_layout(), "page_bytes", 1))),
              HasSubstr("unknown key 'page_bytes' in transfers[0].layout; known are kind, ranges"));
}

// -- memory of a GPU -----------------------------------------------------------------------------

TEST(RefusedMemory, AGpuForHostMemory) {
  EXPECT_THAT(words(request(1, "allocate", {{"name", "a"}, {"bytes", 1}, {"gpu", 0}})),
              HasSubstr("memory: cuda"));
}

TEST(RefusedMemory, ANameForGpuMemoryOrAHandleForHostMemory) {
  const json handle = blob<std::uint8_t>(Bytes(64, 7));
  const json cuda = request(1, "register", {{"name", "a"}, {"bytes", 1}, {"memory", "cuda"}});
  EXPECT_THAT(words(cuda), HasSubstr("ipc_handle of 64 bytes"));
  EXPECT_THAT(words(with(cuda, "ipc_handle", blob<std::uint8_t>(Bytes(63, 7)))),
              HasSubstr("ipc_handle of 64 bytes"));
  EXPECT_THAT(words(with(with(cuda, "ipc_handle", handle), "shared_name", "/a")),
              HasSubstr("shared_name"));
  EXPECT_TRUE(decodes(with(cuda, "ipc_handle", handle)));
  const json host = request(1, "register", {{"name", "a"}, {"bytes", 1}, {"shared_name", "/a"}});
  EXPECT_THAT(words(with(host, "ipc_handle", handle)), HasSubstr("ipc_handle"));
}

TEST(RefusedMemory, ADescriptorWithoutItsSizeOrBesideAHandle) {
  const json cuda = request(1, "register", {{"name", "a"}, {"bytes", 1}, {"memory", "cuda"}});
  const json described = with(with(cuda, "descriptor", 5), "allocation_bytes", 4096);
  EXPECT_TRUE(decodes(described));
  EXPECT_THAT(words(with(cuda, "descriptor", 5)), HasSubstr("allocation_bytes"));
  EXPECT_THAT(words(with(described, "ipc_handle", blob<std::uint8_t>(Bytes(64, 7)))),
              HasSubstr("ipc_handle"));
  EXPECT_THAT(
      words(request(1, "allocate", {{"name", "a"}, {"bytes", 1}, {"export", "descriptor"}})),
      HasSubstr("memory: cuda"));
}

TEST(RefusedTransfer, OfAnotherNodeWithEventsOfThisOneOrWithSeveralTargets) {
  json spec = spec_elsewhere();
  spec["targets"].push_back({{"node", "d"}, {"region", "kv"}});
  EXPECT_THAT(words(transfer_request(1, {spec})), HasSubstr("one target, found 2"));
  for (const char* event : {"start_after", "record_event"}) {
    const json with_event = with(spec_elsewhere(), event, blob<std::uint8_t>(Bytes(64, 1)));
    EXPECT_THAT(words(transfer_request(1, {with_event})), HasSubstr("CUDA events"));
  }
}

TEST(RefusedStream, WithWhatIsOfItsParts) {
  for (const char* of_parts : {"layout", "start_after", "targets"}) {
    const json terms = with(stream_terms(), of_parts, json::object());
    EXPECT_THAT(words(request(1, "stream", terms)), HasSubstr(of_parts));
  }
  json parts = {{"stream", 1}, {"layout", pages_layout()}};
  EXPECT_THAT(words(request(1, "append", parts)), HasSubstr("part"));
  parts["part"] = 0;
  parts["deadline_ms"] = 5;
  EXPECT_THAT(words(request(1, "append", parts)), HasSubstr("deadline_ms"));
  EXPECT_THAT(words(request(1, "close", {{"stream", 1}})), HasSubstr("parts"));
}

TEST(RefusedTransfer, AnEventOfAnotherLengthAndAWayThatIsNone) {
  EXPECT_THAT(words(with_spec("start_after", blob<std::uint8_t>(Bytes(8, 1)))),
              HasSubstr("start_after"));
  EXPECT_THAT(words(with_spec("record_event", blob<std::uint8_t>(Bytes(65, 1)))),
              HasSubstr("record_event"));
  EXPECT_THAT(words(with_spec("path", "nvlink")), HasSubstr("gpudirect"));
}

}  // namespace
}  // namespace penstock::test
