#include <fmt/format.h>

#include <array>

#include "actors/protocol/operations.hpp"

namespace penstock {
namespace {

using enum Presence;

constexpr std::array<std::string_view, 2> kDirections = {"write", "read"};
constexpr std::array<std::string_view, 2> kLanes = {"urgent", "bulk"};
constexpr std::array<std::string_view, 3> kPacking = {"auto", "always", "never"};
constexpr std::array<std::string_view, 3> kLayouts = {"ranges", "pages", "strided"};
constexpr std::uint32_t kMaxWeight = 1000;

void decode_ranges(Fields& fields, Ranges& ranges) {
  fields.list("ranges", ranges.ranges, kRequired, "(source, destination, length) u64 triples");
}

void decode_page_lists(Fields& fields, Pages& pages) {
  fields.list("source_pages", pages.source_pages, kRequired, "u32");
  fields.list("destination_pages", pages.destination_pages, kRequired, "u32");
  fields.base_pairs("bases", pages.bases);
}

void decode_pages(Fields& fields, Pages& pages) {
  fields.u64("page_bytes", pages.row_bytes, kRequired, 1);
  pages.source_pitch = pages.destination_pitch = pages.row_bytes;
  pages.source_stride = pages.destination_stride = pages.row_bytes;
  fields.u64("source_stride", pages.source_stride, kOptional);
  fields.u64("destination_stride", pages.destination_stride, kOptional);
  decode_page_lists(fields, pages);
}

void decode_strided(Fields& fields, Pages& pages) {
  fields.u64("row_bytes", pages.row_bytes, kRequired, 1);
  fields.u32("rows", pages.rows, kRequired, 1);
  fields.u64("source_pitch", pages.source_pitch, kRequired);
  fields.u64("destination_pitch", pages.destination_pitch, kRequired);
  fields.u64("source_stride", pages.source_stride, kRequired);
  fields.u64("destination_stride", pages.destination_stride, kRequired);
  decode_page_lists(fields, pages);
}

void decode_layout(Fields& fields, Layout& layout) {
  auto kind = fields.choice("kind", kLayouts, kRequired);
  if (!kind)
    return fields.refuse(
        ErrorCode::kInvalidArgument,
        fmt::format("a layout needs its kind: one of {}", fmt::join(kLayouts, ", ")));
  switch (*kind) {
    case 0:
      return decode_ranges(fields, layout.emplace<Ranges>());
    case 1:
      return decode_pages(fields, layout.emplace<Pages>());
    default:
      return decode_strided(fields, layout.emplace<Pages>());
  }
}

void decode_event(Fields& fields, std::string_view key, std::string& handle) {
  fields.bytes(key, handle, kIpcHandleBytes);
  if (!handle.empty() && handle.size() != kIpcHandleBytes)
    fields.refuse(ErrorCode::kInvalidArgument,
                  fmt::format("{}: the handle of a CUDA event has {} bytes, not {}", key,
                              kIpcHandleBytes, handle.size()));
}

void decode_target(Fields& fields, TransferTarget& target) {
  fields.name("node", target.node, kOptional);
  fields.name("region", target.region, kRequired);
  fields.u64("epoch", target.epoch, kOptional);
}

/// What transfers and streams have in common.
void decode_terms(Fields& fields, TransferSpec& spec) {
  if (auto direction = fields.choice("direction", kDirections, kRequired))
    spec.direction = *direction == 0 ? Direction::kWrite : Direction::kRead;
  fields.name("region", spec.region, kRequired);
  fields.u32("deadline_ms", spec.deadline_ms, kOptional);
  if (auto lane = fields.choice("lane", kLanes, kOptional))
    spec.lane = *lane == 0 ? Lane::kUrgent : Lane::kBulk;
  fields.u32("weight", spec.weight, kOptional, 1, kMaxWeight);
  fields.name("key", spec.key, kOptional);
  fields.bytes("notify", spec.notify, kMaxNotifyBytes);
  fields.flag("verify", spec.verify);
  if (auto packing = fields.choice("packing", kPacking, kOptional))
    spec.packing = static_cast<PackingMode>(*packing);
  if (auto path = fields.choice("path", kPathChoices, kOptional))
    spec.path = static_cast<PathChoice>(*path);
}

/// A request for just this transfer, for the node that is to carry it out.
std::shared_ptr<const std::vector<std::byte>> packed_for_executor(const Fields& fields) {
  msgpack::sbuffer buffer;
  msgpack::packer<msgpack::sbuffer> packer(buffer);
  packer.pack_map(4);
  packer.pack("v").pack(kProtocolVersion).pack("id").pack(0).pack("op").pack("transfer");
  packer.pack("transfers").pack_array(1);
  fields.pack_without({"on", "key", "deadline_ms"}, packer);
  const auto* first = reinterpret_cast<const std::byte*>(buffer.data());
  return std::make_shared<const std::vector<std::byte>>(first, first + buffer.size());
}

/// What another node can do for us.
void decode_executor(Fields& fields, TransferSpec& spec) {
  fields.name("on", spec.on, kOptional);
  if (spec.on.empty() || fields.failed()) return;
  if (!spec.start_after.empty() || !spec.record_event.empty())
    return fields.refuse(ErrorCode::kInvalidArgument,
                         "on: CUDA events are of this node; another one cannot open them");
  if (spec.targets.size() > 1)
    return fields.refuse(ErrorCode::kInvalidArgument,
                         fmt::format("on: a transfer of another node has one target, found {}; ask "
                                     "for one transfer each",
                                     spec.targets.size()));
  spec.to_pass_on = packed_for_executor(fields);
}

void decode_spec(Fields& fields, TransferSpec& spec) {
  decode_terms(fields, spec);
  fields.maps("targets", kMaxTargets,
              [&](Fields& target) { decode_target(target, spec.targets.emplace_back()); });
  fields.map("layout", [&](Fields& layout) { decode_layout(layout, spec.layout); });
  decode_event(fields, "start_after", spec.start_after);
  decode_event(fields, "record_event", spec.record_event);
  decode_executor(fields, spec);
}

}  // namespace

RequestBody decode_transfer(Fields& fields) {
  TransferRequest request;
  std::size_t targets = 0;
  fields.maps("transfers", kMaxTransfersPerRequest, [&](Fields& transfer) {
    TransferSpec& spec = request.transfers.emplace_back();
    decode_spec(transfer, spec);
    targets += spec.targets.size();
    if (targets > kMaxTransfersPerRequest)
      transfer.refuse(ErrorCode::kInvalidArgument,
                      fmt::format("transfers: each target is a transfer, and one request may ask "
                                  "for {}; split it",
                                  kMaxTransfersPerRequest));
  });
  return request;
}

RequestBody decode_stream(Fields& fields) {
  StreamRequest request;
  decode_terms(fields, request.terms);
  fields.map("target",
             [&](Fields& target) { decode_target(target, request.terms.targets.emplace_back()); });
  return request;
}

RequestBody decode_append(Fields& fields) {
  AppendRequest request;
  fields.u64("stream", request.stream, kRequired);
  fields.u32("part", request.part, kRequired);
  fields.map("layout", [&](Fields& layout) { decode_layout(layout, request.layout); });
  fields.bytes("notify", request.notify, kMaxNotifyBytes);
  decode_event(fields, "start_after", request.start_after);
  decode_event(fields, "record_event", request.record_event);
  return request;
}

RequestBody decode_close(Fields& fields) {
  CloseRequest request;
  fields.u64("stream", request.stream, kRequired);
  fields.u32("parts", request.parts, kRequired);
  return request;
}

}  // namespace penstock
