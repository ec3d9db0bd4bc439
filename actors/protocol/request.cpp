#include "actors/protocol/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <msgpack.hpp>
#include <new>

#include "actors/protocol/operations.hpp"
#include "actors/protocol/unpack.hpp"

namespace penstock {
namespace {

using enum Presence;

constexpr std::array<std::string_view, 3> kTopics = {"transfers", "notify", "members"};
constexpr std::uint32_t kMaxTransfersListed = 100'000;
constexpr std::uint32_t kLongestDrainMs = 24 * 3600 * 1000;
constexpr std::uint32_t kLongestLeaseMs = 24 * 3600 * 1000;

RequestBody decode_hello(Fields& fields) {
  HelloRequest request;
  fields.words("client", request.client);
  fields.u32("lease_ms", request.lease_ms, kOptional, 0, kLongestLeaseMs);
  fields.u32("ring", request.ring, kOptional, 1, UINT32_MAX);
  return request;
}

constexpr std::array<std::string_view, 2> kMemories = {"host", "cuda"};
constexpr std::array<std::string_view, 2> kExports = {"ipc", "descriptor"};

/// What memory it is, and on which GPU.
template <class Request>
void decode_memory(Fields& fields, Request& request) {
  const auto memory = fields.choice("memory", kMemories, kOptional);
  const bool on_gpu = memory && *memory == 1;
  if (on_gpu) request.memory = MemoryKind::kCuda;
  std::uint32_t gpu = UINT32_MAX;
  fields.u32("gpu", gpu, kOptional, 0, 1023);
  if (gpu == UINT32_MAX) return;
  request.gpu = gpu;
  if (!on_gpu)
    fields.refuse(ErrorCode::kInvalidArgument,
                  "gpu: only memory of a GPU lies on one; add memory: cuda");
}

RequestBody decode_allocate(Fields& fields) {
  AllocateRequest request;
  decode_memory(fields, request);
  const auto exported = fields.choice("export", kExports, kOptional);
  request.as_descriptor = exported && *exported == 1;
  if (request.as_descriptor && request.memory != MemoryKind::kCuda)
    fields.refuse(ErrorCode::kInvalidArgument, "export: only memory of a GPU; add memory: cuda");
  fields.name("name", request.name, kRequired);
  fields.u64("bytes", request.bytes, kRequired, 1);
  fields.name("device", request.device, kOptional);
  fields.texts("allow", request.allow, kMaxAllowed);
  return request;
}

RequestBody decode_register(Fields& fields) {
  RegisterRequest request;
  decode_memory(fields, request);
  const bool on_gpu = request.memory == MemoryKind::kCuda;
  fields.name("name", request.name, kRequired);
  fields.name("shared_name", request.shared_name, on_gpu ? kOptional : kRequired);
  fields.bytes("ipc_handle", request.ipc_handle, kIpcHandleBytes);
  fields.u64("descriptor", request.descriptor, kOptional, 1);
  fields.u64("allocation_bytes", request.allocation_bytes, kOptional, 1);
  const bool by_handle = request.ipc_handle.size() == kIpcHandleBytes;
  const bool by_descriptor = request.descriptor != 0 && request.allocation_bytes != 0;
  const bool any = !request.ipc_handle.empty() || request.descriptor != 0;
  const bool both = !request.ipc_handle.empty() && request.descriptor != 0;
  if (on_gpu ? both || !(by_handle || by_descriptor) || !request.shared_name.empty() : any)
    fields.refuse(
        ErrorCode::kInvalidArgument,
        fmt::format("memory cuda is named by an ipc_handle of {} bytes, or by a descriptor "
                    "and its allocation_bytes; memory host by its shared_name",
                    kIpcHandleBytes));
  fields.u64("offset", request.offset, kOptional);
  fields.u64("bytes", request.bytes, kRequired, 1);
  fields.name("device", request.device, kOptional);
  fields.texts("allow", request.allow, kMaxAllowed);
  return request;
}

RequestBody decode_release(Fields& fields) {
  ReleaseRequest request;
  fields.name("name", request.name, kRequired);
  fields.flag("force", request.force);
  return request;
}

RequestBody decode_keep(Fields& fields) {
  KeepRequest request;
  fields.name("name", request.name, kRequired);
  return request;
}

RequestBody decode_regions(Fields&) { return RegionsRequest{}; }
RequestBody decode_nodes(Fields&) { return NodesRequest{}; }
RequestBody decode_status(Fields&) { return StatusRequest{}; }

RequestBody decode_cancel(Fields& fields) {
  CancelRequest request;
  fields.ids("ids", request.ids, kRequired);
  return request;
}

RequestBody decode_transfers(Fields& fields) {
  TransfersRequest request;
  fields.ids("ids", request.ids, kOptional);
  fields.u32("limit", request.limit, kOptional, 1, kMaxTransfersListed);
  fields.flag("under_way_first", request.under_way_first);
  return request;
}

RequestBody decode_fill(Fields& fields) {
  FillRequest request;
  fields.name("region", request.region, kRequired);
  fields.u64("seed", request.seed, kOptional);
  fields.u64("offset", request.offset, kOptional);
  fields.u64("bytes", request.bytes, kOptional);
  return request;
}

RequestBody decode_digest(Fields& fields) {
  DigestRequest request;
  fields.name("region", request.region, kRequired);
  fields.u64("page_bytes", request.page_bytes, kRequired, 1);
  fields.u64("offset", request.offset, kOptional);
  fields.u64("bytes", request.bytes, kOptional);
  fields.list("pages", request.pages, kOptional, "u32");
  return request;
}

RequestBody decode_subscribe(Fields& fields) {
  SubscribeRequest request;
  fields.choices_list("topics", kTopics, request.topics);
  std::uint64_t since = UINT64_MAX;
  fields.u64("since", since, kOptional, 0, UINT64_MAX - 1);
  if (since != UINT64_MAX) request.since = since;
  return request;
}

RequestBody decode_drain(Fields& fields) {
  DrainRequest request;
  fields.name("node", request.node, kOptional);
  fields.u32("deadline_ms", request.deadline_ms, kOptional, 0, kLongestDrainMs);
  return request;
}

RequestBody decode_remove(Fields& fields) {
  RemoveRequest request;
  fields.name("node", request.node, kRequired);
  fields.flag("force", request.force);
  return request;
}

RequestBody decode_trace(Fields& fields) {
  TraceRequest request;
  fields.u64("transfer", request.transfer, kRequired);
  return request;
}

struct Operation {
  std::string_view name;
  RequestBody (*decode)(Fields&);
  Role role;
};

constexpr std::array<Operation, 20> kOperations = {{
    {"hello", decode_hello, Role::kRead},           {"allocate", decode_allocate, Role::kTransfer},
    {"register", decode_register, Role::kTransfer}, {"release", decode_release, Role::kTransfer},
    {"regions", decode_regions, Role::kRead},       {"nodes", decode_nodes, Role::kRead},
    {"status", decode_status, Role::kRead},         {"transfer", decode_transfer, Role::kTransfer},
    {"cancel", decode_cancel, Role::kTransfer},     {"transfers", decode_transfers, Role::kRead},
    {"fill", decode_fill, Role::kTransfer},         {"digest", decode_digest, Role::kTransfer},
    {"subscribe", decode_subscribe, Role::kRead},   {"drain", decode_drain, Role::kAdmin},
    {"remove", decode_remove, Role::kAdmin},        {"trace", decode_trace, Role::kRead},
    {"keep", decode_keep, Role::kTransfer},         {"stream", decode_stream, Role::kTransfer},
    {"append", decode_append, Role::kTransfer},     {"close", decode_close, Role::kTransfer},
}};
static_assert(kOperations.size() == std::variant_size_v<RequestBody>);

/// The place of the request's "op" in kOperations. Looked at before anything else is asked for, so
/// that the list of known operations is the error and not the operation's missing keys.
const Operation* operation_of(Fields& fields) {
  static constexpr auto kNames = [] {
    std::array<std::string_view, kOperations.size()> names;
    std::ranges::transform(kOperations, names.begin(), &Operation::name);
    return names;
  }();
  auto place = fields.choice("op", kNames, kRequired);
  return place ? &kOperations[*place] : nullptr;
}

void decode_fields(Fields& fields, Request& request) {
  std::uint32_t version = kProtocolVersion;
  fields.u32("v", version, kRequired);
  if (version != kProtocolVersion)
    fields.refuse(ErrorCode::kUnsupported,
                  fmt::format("v: the request speaks protocol version {}, this service speaks {}",
                              version, kProtocolVersion));
  fields.u64("id", request.id, kRequired);
  const Operation* operation = operation_of(fields);
  if (!operation) return fields.refuse(ErrorCode::kInvalidArgument, "op is missing");
  request.body = operation->decode(fields);
  fields.finish();
}

}  // namespace

// The variant's alternatives are in the order of the table.
Role role_for(const RequestBody& body) { return kOperations.at(body.index()).role; }
std::string_view name_of(const RequestBody& body) { return kOperations.at(body.index()).name; }

tl::expected<Request, BadRequest> decode_request(std::span<const std::byte> message,
                                                 std::shared_ptr<const void> owner) {
  std::uint64_t id = 0;
  try {
    // A zone of its own would cost each message a page of memory, taken and given back.
    thread_local msgpack::zone zone;
    struct Emptied {
      ~Emptied() { zone.clear(); }
    } emptied;
    Unpacked unpacked = unpack_message(message, zone);
    id = unpacked.id;
    if (unpacked.error) return tl::unexpected(BadRequest{id, std::move(*unpacked.error)});
    Decoding decoding{std::move(owner), std::nullopt};
    const Place top;
    tl::expected<Request, BadRequest> request;
    Fields fields(unpacked.value, top, decoding);
    decode_fields(fields, *request);
    if (decoding.error) request = tl::unexpected(BadRequest{id, std::move(*decoding.error)});
    return request;
  } catch (const std::bad_alloc&) {
    // Short enough to need no allocation.
    return tl::unexpected(BadRequest{id, Error{ErrorCode::kResourceExhausted, "out of memory"}});
  } catch (...) {
    return tl::unexpected(BadRequest{id, Error{ErrorCode::kInvalidArgument, "not msgpack"}});
  }
}

}  // namespace penstock
