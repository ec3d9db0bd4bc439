// Requests as the client writes them. wire.cpp reads what comes back.
#include <array>
#include <cstring>
#include <msgpack.hpp>
#include <utility>

#include "client/cpp/wire.hpp"

namespace penstock::client {
namespace {

/// msgpack straight into a Message. It comes in pieces of a few bytes, which are gathered first:
/// put at the vector's end one by one they would cost more than all the rest of a small request.
class Writer {
 public:
  explicit Writer(std::size_t expected_bytes) { message_.reserve(expected_bytes); }

  void write(const char* data, std::size_t size) {
    if (size == 0) return;  // `data` may be null
    if (size > gathered_.size() - used_) flush();
    if (size > gathered_.size()) return append(reinterpret_cast<const std::uint8_t*>(data), size);
    std::memcpy(gathered_.data() + used_, data, size);
    used_ += size;
  }
  /// A short text that is known here, which saves it most of the above.
  template <std::size_t Size>
  void key(const char (&name)[Size]) {
    static_assert(Size <= 32, "of msgpack's fixstr");
    if (Size > gathered_.size() - used_) flush();
    gathered_[used_] = 0xa0 | (Size - 1);
    std::memcpy(gathered_.data() + used_ + 1, name, Size - 1);
    used_ += Size;
  }
  void map(std::uint32_t fields) { packer_.pack_map(fields); }
  void array(std::uint32_t items) { packer_.pack_array(items); }
  void text(std::string_view value) {
    packer_.pack_str(static_cast<std::uint32_t>(value.size()));
    packer_.pack_str_body(value.data(), static_cast<std::uint32_t>(value.size()));
  }
  void blob(std::span<const std::byte> bytes) {
    if (bytes.size() > UINT32_MAX) {
      throw Error("INVALID_ARGUMENT", "a list of " + std::to_string(bytes.size()) +
                                          " bytes does not fit into one request; split it");
    }
    packer_.pack_bin(static_cast<std::uint32_t>(bytes.size()));
    packer_.pack_bin_body(reinterpret_cast<const char*>(bytes.data()),
                          static_cast<std::uint32_t>(bytes.size()));
  }

  void field(const auto& name, std::string_view value) { key(name), text(value); }
  void field(const auto& name, std::uint64_t value) { key(name), packer_.pack(value); }
  void flag(const auto& name) { key(name), packer_.pack(true); }
  template <class T>
  void list(const auto& name, std::span<const T> values) {
    key(name), blob(std::as_bytes(values));
  }

  Message take() {
    flush();
    return std::move(message_);
  }

 private:
  void flush() { append(gathered_.data(), std::exchange(used_, 0)); }
  /// As bytes of the message's own type: of another they would be converted one by one, 0.7 ms for
  /// the lists of 262144 pages instead of 0.1.
  void append(const std::uint8_t* bytes, std::size_t size) {
    message_.insert(message_.end(), bytes, bytes + size);
  }

  Message message_;
  std::array<std::uint8_t, 512> gathered_;
  std::size_t used_ = 0;
  msgpack::packer<Writer> packer_{*this};
};

void check_lists(std::size_t source, std::size_t destination) {
  if (source == destination) return;
  throw Error("INVALID_ARGUMENT", "the layout lists " + std::to_string(source) +
                                      " source pages but " + std::to_string(destination) +
                                      " destination pages; give as many of both");
}

void write_layout(Writer& out, const Ranges& layout) {
  out.map(2);
  out.field("kind", "ranges");
  out.list("ranges", std::span<const Range>(layout.ranges));
}

/// What pages and strided have in common; the caller has opened the map.
template <class Paged>
void write_lists(Writer& out, const Paged& layout) {
  check_lists(layout.source_pages.size(), layout.destination_pages.size());
  out.list("source_pages", layout.source_pages);
  out.list("destination_pages", layout.destination_pages);
  out.list("bases", std::span<const BasePair>(layout.bases));
}

std::uint64_t either(std::uint64_t value, std::uint64_t fallback) {
  return value != 0 ? value : fallback;
}

void write_layout(Writer& out, const Pages& layout) {
  out.map(7);
  out.field("kind", "pages");
  out.field("page_bytes", layout.page_bytes);
  out.field("source_stride", either(layout.source_stride, layout.page_bytes));
  out.field("destination_stride", either(layout.destination_stride, layout.page_bytes));
  write_lists(out, layout);
}

/// rows * pitch, saturating: the service refuses what does not fit, rather than a wrapped value.
std::uint64_t run_bytes(std::uint64_t pitch, std::uint64_t rows) {
  return rows != 0 && pitch > UINT64_MAX / rows ? UINT64_MAX : pitch * rows;
}

void write_layout(Writer& out, const Strided& layout) {
  auto source_pitch = either(layout.source_pitch, layout.row_bytes);
  auto destination_pitch = either(layout.destination_pitch, layout.row_bytes);
  out.map(10);
  out.field("kind", "strided");
  out.field("row_bytes", layout.row_bytes);
  out.field("rows", layout.rows);
  out.field("source_pitch", source_pitch);
  out.field("destination_pitch", destination_pitch);
  out.field("source_stride", either(layout.source_stride, run_bytes(source_pitch, layout.rows)));
  out.field("destination_stride",
            either(layout.destination_stride, run_bytes(destination_pitch, layout.rows)));
  write_lists(out, layout);
}

void write_target(Writer& out, const Target& target) {
  out.map(target.epoch != 0 ? 3 : 2);
  out.field("node", target.node);
  out.field("region", target.region);
  if (target.epoch != 0) out.field("epoch", target.epoch);
}

void write_targets(Writer& out, const std::vector<Target>& targets) {
  out.key("targets");
  out.array(static_cast<std::uint32_t>(targets.size()));
  for (const auto& target : targets) write_target(out, target);
}

void write_bytes(Writer& out, const auto& name, const std::string& bytes) {
  if (!bytes.empty()) out.list(name, std::span<const char>(bytes));
}

// What transfers and streams have alike; `notify` comes with the optional ones, later.
template <class Spec>
int optional_terms(const Spec& spec) {
  return (spec.deadline_ms != 0) + !spec.key.empty() + !spec.notify.empty() +
         (spec.packing != Packing::kAuto) + !spec.path.empty() + spec.verify;
}

template <class Spec>
void write_terms(Writer& out, const Spec& spec) {
  out.field("lane", spec.lane == Lane::kUrgent ? "urgent" : "bulk");
  out.field("weight", spec.weight);
  if (spec.deadline_ms != 0) out.field("deadline_ms", spec.deadline_ms);
  if (!spec.key.empty()) out.field("key", spec.key);
  if (spec.packing != Packing::kAuto)
    out.field("packing", spec.packing == Packing::kAlways ? "always" : "never");
  if (!spec.path.empty()) out.field("path", spec.path);
  if (spec.verify) out.flag("verify");
}

void write_spec(Writer& out, const TransferSpec& spec) {
  const auto optional_fields = optional_terms(spec) + !spec.start_after.empty() +
                               !spec.record_event.empty() + !spec.on.empty();
  out.map(6 + static_cast<std::uint32_t>(optional_fields));
  out.field("direction", spec.direction == Direction::kWrite ? "write" : "read");
  out.field("region", spec.region);
  write_targets(out, spec.targets);
  out.key("layout");
  std::visit([&](const auto& layout) { write_layout(out, layout); }, spec.layout);
  write_terms(out, spec);
  if (!spec.on.empty()) out.field("on", spec.on);
  write_bytes(out, "start_after", spec.start_after);
  write_bytes(out, "record_event", spec.record_event);
  write_bytes(out, "notify", spec.notify);
}

struct ListBytes {
  std::size_t operator()(const Ranges& layout) const {
    return layout.ranges.size() * sizeof(Range);
  }
  template <class Paged>
  std::size_t operator()(const Paged& layout) const {
    return layout.source_pages.size_bytes() + layout.destination_pages.size_bytes() +
           layout.bases.size() * sizeof(BasePair);
  }
};

}  // namespace

Message encode_request(std::uint64_t id, std::string_view operation, Json fields) {
  fields["v"] = kProtocolVersion;
  fields["id"] = id;
  fields["op"] = operation;
  return Json::to_msgpack(fields);
}

Message encode_transfer(std::uint64_t id, std::span<const TransferSpec> specs) {
  std::size_t expected_bytes = 64;
  for (const auto& spec : specs) {
    expected_bytes +=
        512 + spec.targets.size() * 64 + spec.notify.size() + std::visit(ListBytes{}, spec.layout);
  }
  Writer out(expected_bytes);
  out.map(4);
  out.field("v", kProtocolVersion);
  out.field("id", id);
  out.field("op", "transfer");
  out.key("transfers");
  out.array(static_cast<std::uint32_t>(specs.size()));
  for (const auto& spec : specs) write_spec(out, spec);
  return out.take();
}

Message encode_stream(std::uint64_t id, const StreamSpec& spec) {
  Writer out(512 + spec.notify.size());
  out.map(8 + static_cast<std::uint32_t>(optional_terms(spec)));
  out.field("v", kProtocolVersion);
  out.field("id", id);
  out.field("op", "stream");
  out.field("direction", spec.direction == Direction::kWrite ? "write" : "read");
  out.field("region", spec.region);
  out.key("target");
  write_target(out, spec.target);
  write_terms(out, spec);
  write_bytes(out, "notify", spec.notify);
  return out.take();
}

Message encode_append(std::uint64_t id, std::uint64_t stream, std::uint32_t number,
                      const Part& part) {
  Writer out(512 + part.notify.size() + std::visit(ListBytes{}, part.layout));
  out.map(6 + static_cast<std::uint32_t>(!part.notify.empty() + !part.start_after.empty() +
                                         !part.record_event.empty()));
  out.field("v", kProtocolVersion);
  out.field("id", id);
  out.field("op", "append");
  out.field("stream", stream);
  out.field("part", number);
  out.key("layout");
  std::visit([&](const auto& layout) { write_layout(out, layout); }, part.layout);
  write_bytes(out, "notify", part.notify);
  write_bytes(out, "start_after", part.start_after);
  write_bytes(out, "record_event", part.record_event);
  return out.take();
}

}  // namespace penstock::client
