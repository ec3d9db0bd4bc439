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

Layout decode_ranges(Fields& fields) {
  Ranges ranges;
  fields.list("ranges", ranges.ranges, kRequired, "(source, destination, length) u64 triples");
  return ranges;
}

void decode_page_lists(Fields& fields, Pages& pages) {
  fields.list("source_pages", pages.source_pages, kRequired, "u32");
  fields.list("destination_pages", pages.destination_pages, kRequired, "u32");
  fields.base_pairs("bases", pages.bases);
}

Layout decode_pages(Fields& fields) {
  Pages pages;
  fields.u64("page_bytes", pages.row_bytes, kRequired, 1);
  pages.source_pitch = pages.destination_pitch = pages.row_bytes;
  pages.source_stride = pages.destination_stride = pages.row_bytes;
  fields.u64("source_stride", pages.source_stride, kOptional);
  fields.u64("destination_stride", pages.destination_stride, kOptional);
  decode_page_lists(fields, pages);
  return pages;
}

Layout decode_strided(Fields& fields) {
  Pages pages;
  fields.u64("row_bytes", pages.row_bytes, kRequired, 1);
  fields.u32("rows", pages.rows, kRequired, 1);
  fields.u64("source_pitch", pages.source_pitch, kRequired);
  fields.u64("destination_pitch", pages.destination_pitch, kRequired);
  fields.u64("source_stride", pages.source_stride, kRequired);
  fields.u64("destination_stride", pages.destination_stride, kRequired);
  decode_page_lists(fields, pages);
  return pages;
}

Layout decode_layout(Fields& fields) {
  auto kind = fields.choice("kind", kLayouts, kRequired);
  if (!kind) {
    fields.refuse(ErrorCode::kInvalidArgument,
                  fmt::format("a layout needs its kind: one of {}", fmt::join(kLayouts, ", ")));
    return {};
  }
  switch (*kind) {
    case 0:
      return decode_ranges(fields);
    case 1:
      return decode_pages(fields);
    default:
      return decode_strided(fields);
  }
}

void decode_event(Fields& fields, std::string_view key, std::string& handle) {
  fields.bytes(key, handle, kIpcHandleBytes);
  if (!handle.empty() && handle.size() != kIpcHandleBytes)
    fields.refuse(ErrorCode::kInvalidArgument,
                  fmt::format("{}: the handle of a CUDA event has {} bytes, not {}", key,
                              kIpcHandleBytes, handle.size()));
}

TransferTarget decode_target(Fields& fields) {
  TransferTarget target;
  fields.name("node", target.node, kOptional);
  fields.name("region", target.region, kRequired);
  fields.u64("epoch", target.epoch, kOptional);
  return target;
}

TransferSpec decode_spec(Fields& fields) {
  TransferSpec spec;
  if (auto direction = fields.choice("direction", kDirections, kRequired))
    spec.direction = *direction == 0 ? Direction::kWrite : Direction::kRead;
  fields.name("region", spec.region, kRequired);
  fields.maps("targets", kMaxTargets,
              [&](Fields& target) { spec.targets.push_back(decode_target(target)); });
  fields.map("layout", [&](Fields& layout) { spec.layout = decode_layout(layout); });
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
  decode_event(fields, "start_after", spec.start_after);
  decode_event(fields, "record_event", spec.record_event);
  return spec;
}

}  // namespace

RequestBody decode_transfer(Fields& fields) {
  TransferRequest request;
  std::size_t targets = 0;
  fields.maps("transfers", kMaxTransfersPerRequest, [&](Fields& spec) {
    request.transfers.push_back(decode_spec(spec));
    targets += request.transfers.back().targets.size();
    if (targets > kMaxTransfersPerRequest)
      spec.refuse(ErrorCode::kInvalidArgument,
                  fmt::format("transfers: each target is a transfer, and one request may ask for "
                              "{}; split it",
                              kMaxTransfersPerRequest));
  });
  return request;
}

}  // namespace penstock
