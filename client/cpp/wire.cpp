#include "client/cpp/wire.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <msgpack.hpp>

namespace penstock::client {
namespace {

constexpr std::size_t kMaxDepth = 16;

/// Counts nesting without building anything: the JSON reader recurses, so depth is checked first.
class DepthCheck : public msgpack::null_visitor {
 public:
  bool start_array(std::uint32_t) { return ++depth_ <= kMaxDepth; }
  bool end_array() { return depth_-- > 0; }
  bool start_map(std::uint32_t) { return ++depth_ <= kMaxDepth; }
  bool end_map() { return depth_-- > 0; }
  void parse_error(std::size_t, std::size_t) {}
  void insufficient_bytes(std::size_t, std::size_t) {}

 private:
  std::size_t depth_ = 0;
};

Error not_understood(const std::string& what) {
  return Error("INTERNAL", "the service's message cannot be understood: " + what +
                               "; do client and service have the same version?");
}

/// Runs a reader; what nlohmann throws for a wrong type becomes Error INTERNAL.
template <class Reader>
auto reading(const Json& body, Reader&& reader) {
  if (!body.is_object()) throw not_understood("a map was expected");
  try {
    return reader();
  } catch (const Json::exception& problem) {
    throw not_understood(problem.what());
  }
}

std::string text_or_bytes(const Json& body, const char* key) {
  auto found = body.find(key);
  if (found == body.end() || found->is_null()) return {};
  if (!found->is_binary()) return found->get<std::string>();
  const auto& bytes = found->get_binary();
  return std::string(bytes.begin(), bytes.end());
}

/// Missing and null alike keep the default.
template <class T>
T value_of(const Json& body, const char* key, T fallback) {
  if (!body.is_object()) throw not_understood("a map was expected");
  auto found = body.find(key);
  return found == body.end() || found->is_null() ? fallback : found->get<T>();
}

std::vector<Range> read_landed(const Json& body) {
  auto found = body.find("landed");
  if (found == body.end() || found->is_null()) return {};
  auto words = unpacked_u64(*found);
  if (words.size() % 3 != 0) throw not_understood("'landed' is no list of triples");
  std::vector<Range> ranges;
  ranges.reserve(words.size() / 3);
  for (std::size_t i = 0; i < words.size(); i += 3) {
    ranges.push_back({words[i], words[i + 1], words[i + 2]});
  }
  return ranges;
}

TransferResult::State read_state(const std::string& name) {
  if (name == "done") return TransferResult::State::kDone;
  if (name == "failed") return TransferResult::State::kFailed;
  if (name == "cancelled") return TransferResult::State::kCancelled;
  if (name == "expired") return TransferResult::State::kExpired;
  throw not_understood("a transfer ended as '" + name + "'");
}

Notification read_notification(const Json& body) {
  Notification notification;
  notification.from = value_of<std::string>(body, "from", "");
  notification.transfer = value_of<std::uint64_t>(body, "transfer", 0);
  notification.region = value_of<std::string>(body, "region", "");
  notification.bytes = value_of<std::uint64_t>(body, "bytes", 0);
  notification.data = text_or_bytes(body, "data");
  notification.stream = value_of<std::uint64_t>(body, "stream", 0);
  notification.part = value_of<std::uint32_t>(body, "part", 0);
  return notification;
}

MemberChange read_member(const Json& body, MemberChange::Kind kind) {
  MemberChange change;
  change.kind = kind;
  change.node = value_of<std::string>(body, "node", "");
  change.incarnation = value_of<std::uint64_t>(body, "incarnation", 0);
  return change;
}

/// msgpack straight into a Message.
class Writer {
 public:
  explicit Writer(std::size_t expected_bytes) { message_.reserve(expected_bytes); }

  void write(const char* data, std::size_t size) {
    // As bytes of the message's own type: of another they would be converted one by one, 0.7 ms for
    // the lists of 262144 pages instead of 0.1.
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(data);
    message_.insert(message_.end(), bytes, bytes + size);
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

  void field(std::string_view key, std::string_view value) { text(key), text(value); }
  void field(std::string_view key, std::uint64_t value) { text(key), packer_.pack(value); }
  void flag(std::string_view key) { text(key), packer_.pack(true); }
  template <class T>
  void list(std::string_view key, std::span<const T> values) {
    text(key), blob(std::as_bytes(values));
  }

  Message take() { return std::move(message_); }

 private:
  Message message_;
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
  out.text("targets");
  out.array(static_cast<std::uint32_t>(targets.size()));
  for (const auto& target : targets) write_target(out, target);
}

void write_bytes(Writer& out, std::string_view key, const std::string& bytes) {
  if (!bytes.empty()) out.list(key, std::span<const char>(bytes));
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
  out.text("layout");
  std::visit([&](const auto& layout) { write_layout(out, layout); }, spec.layout);
  write_terms(out, spec);
  if (!spec.on.empty()) out.field("on", spec.on);
  if (!spec.start_after.empty()) out.list("start_after", std::span<const char>(spec.start_after));
  if (!spec.record_event.empty())
    out.list("record_event", std::span<const char>(spec.record_event));
  if (!spec.notify.empty()) {
    out.list("notify", std::span<const char>(spec.notify));
  }
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

std::string hex(const Json::binary_t& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (auto byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

void replace_binaries(Json& value) {
  if (value.is_binary()) {
    value = hex(value.get_binary());
  } else if (value.is_structured()) {
    for (auto& item : value) replace_binaries(item);
  }
}

}  // namespace

Message encode_request(std::uint64_t id, std::string_view operation, Json fields) {
  fields["v"] = kProtocolVersion;
  fields["id"] = id;
  fields["op"] = operation;
  return Json::to_msgpack(fields);
}

Message encode_transfer(std::uint64_t id, const std::vector<TransferSpec>& specs) {
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
  out.text("transfers");
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
  out.text("target");
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
  out.text("layout");
  std::visit([&](const auto& layout) { write_layout(out, layout); }, part.layout);
  write_bytes(out, "notify", part.notify);
  write_bytes(out, "start_after", part.start_after);
  write_bytes(out, "record_event", part.record_event);
  return out.take();
}

std::vector<std::uint64_t> unpacked_u64(const Json& list) {
  if (!list.is_binary()) {
    try {
      return list.get<std::vector<std::uint64_t>>();
    } catch (const Json::exception& problem) {
      throw not_understood(problem.what());
    }
  }
  const auto& bytes = list.get_binary();
  if (bytes.size() % 8 != 0) throw not_understood("a list of u64 has a broken length");
  std::vector<std::uint64_t> words(bytes.size() / 8);
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

Json decode_message(std::span<const std::uint8_t> message) {
  DepthCheck depth;
  if (!msgpack::parse(reinterpret_cast<const char*>(message.data()), message.size(), depth)) {
    throw not_understood("it is no msgpack, or nested too deep");
  }
  auto body = Json::from_msgpack(message, true, false);
  if (!body.is_object()) throw not_understood("it is no map");
  return body;
}

bool is_terminal(const Json& body) {
  constexpr std::array<std::string_view, 4> kTerminal{"done", "failed", "cancelled", "expired"};
  return reading(body, [&] {
    return std::ranges::count(kTerminal, value_of<std::string>(body, "state", "")) != 0;
  });
}

TransferResult read_transfer_result(const Json& body) {
  return reading(body, [&] {
    TransferResult result;
    result.id = value_of<std::uint64_t>(body, "id", 0);
    result.state = read_state(value_of<std::string>(body, "state", ""));
    if (value_of<std::string>(body, "remote", "quiet") == "unreachable") {
      result.remote = TransferResult::Remote::kUnreachable;
    }
    result.node = value_of<std::string>(body, "node", "");
    result.region = value_of<std::string>(body, "region", "");
    result.remote_region = value_of<std::string>(body, "remote_region", "");
    result.direction = value_of<std::string>(body, "direction", "");
    result.lane = value_of<std::string>(body, "lane", "");
    result.bytes = value_of<std::uint64_t>(body, "bytes", 0);
    result.writes = value_of<std::uint64_t>(body, "writes", 0);
    result.elapsed_us = value_of<std::uint64_t>(body, "elapsed_us", 0);
    result.path = value_of<std::string>(body, "path", "");
    for (const auto& card : value_of<Json>(body, "cards", Json::array())) {
      result.cards.push_back({value_of<std::string>(card, "name", ""),
                              value_of<std::uint64_t>(card, "bytes", 0),
                              value_of<std::uint64_t>(card, "writes", 0)});
    }
    auto error = value_of<Json>(body, "error", Json::object());
    result.error_code = value_of<std::string>(error, "code", "");
    result.error_message = value_of<std::string>(error, "message", "");
    result.landed = read_landed(body);
    result.landed_truncated = value_of<bool>(body, "landed_truncated", false);
    result.on = value_of<std::string>(body, "on", "");
    result.on_as = value_of<std::uint64_t>(body, "on_as", 0);
    result.stream = value_of<std::uint64_t>(body, "stream", 0);
    result.part = value_of<std::uint32_t>(body, "part", 0);
    result.parts = value_of<std::uint32_t>(body, "parts", 0);
    result.parts_done = value_of<std::uint32_t>(body, "parts_done", 0);
    return result;
  });
}

TransferTrace read_trace(const Json& body) {
  return reading(body, [&] {
    TransferTrace trace;
    // "id" is that of the request in a reply.
    trace.id = value_of<std::uint64_t>(body, "transfer", 0);
    trace.state = value_of<std::string>(body, "state", "");
    trace.node = value_of<std::string>(body, "node", "");
    trace.region = value_of<std::string>(body, "region", "");
    trace.remote_region = value_of<std::string>(body, "remote_region", "");
    trace.direction = value_of<std::string>(body, "direction", "");
    trace.lane = value_of<std::string>(body, "lane", "");
    trace.path = value_of<std::string>(body, "path", "");
    trace.bytes = value_of<std::uint64_t>(body, "bytes", 0);
    trace.writes = value_of<std::uint64_t>(body, "writes", 0);
    trace.started_unix_us = value_of<std::uint64_t>(body, "started_unix_us", 0);
    trace.total_ns = value_of<std::uint64_t>(body, "total_ns", 0);
    for (const auto& stage : value_of<Json>(body, "stages", Json::array()))
      trace.stages.push_back({value_of<std::string>(stage, "stage", ""),
                              value_of<std::uint64_t>(stage, "at_ns", 0),
                              value_of<std::uint64_t>(stage, "ns", 0)});
    for (const auto& card : value_of<Json>(body, "cards", Json::array()))
      trace.cards.push_back({value_of<std::string>(card, "name", ""),
                             value_of<std::uint64_t>(card, "bytes", 0),
                             value_of<std::uint64_t>(card, "writes", 0),
                             value_of<std::uint64_t>(card, "last_ns", 0)});
    return trace;
  });
}

RegionInfo read_region(const Json& body) {
  return reading(body, [&] {
    RegionInfo region;
    region.name = value_of<std::string>(body, "name", "");
    region.bytes = value_of<std::uint64_t>(body, "bytes", 0);
    region.epoch = value_of<std::uint64_t>(body, "epoch", 0);
    region.device = value_of<std::string>(body, "device", "");
    region.kind = value_of<std::string>(body, "kind", "");
    region.shared_name = value_of<std::string>(body, "shared_name", "");
    region.shared_offset = value_of<std::uint64_t>(body, "shared_offset", 0);
    region.gpu = value_of<int>(body, "gpu", -1);
    region.gpu_bus = value_of<std::string>(body, "gpu_bus", "");
    region.reach = value_of<std::string>(body, "reach", "");
    region.ipc_offset = value_of<std::uint64_t>(body, "ipc_offset", 0);
    if (const auto handle = body.find("ipc_handle"); handle != body.end() && handle->is_binary())
      for (const std::uint8_t byte : handle->get_binary())
        region.ipc_handle.push_back(static_cast<std::byte>(byte));
    return region;
  });
}

NodeInfo read_node(const Json& body) {
  return reading(body, [&] {
    NodeInfo node;
    node.name = value_of<std::string>(body, "name", "");
    node.incarnation = value_of<std::uint64_t>(body, "incarnation", 0);
    node.state = value_of<std::string>(body, "state", "");
    node.address = value_of<std::string>(body, "request_endpoint", "");
    node.json = to_text(body);
    return node;
  });
}

ServiceInfo read_service(const Json& hello) {
  return reading(hello, [&] {
    ServiceInfo service;
    service.node = value_of<std::string>(hello, "node", "");
    service.incarnation = value_of<std::uint64_t>(hello, "incarnation", 0);
    service.version = value_of<std::string>(hello, "service_version", "");
    service.descriptor_socket = value_of<std::string>(hello, "descriptor_socket", "");
    return service;
  });
}

Event read_event(const Json& body) {
  return reading(body, [&] {
    Event event;
    event.sequence = value_of<std::uint64_t>(body, "seq", 0);
    event.name = value_of<std::string>(body, "event", "");
    if (event.name == "transfer") {
      event.body = read_transfer_result(body);
    } else if (event.name == "notify") {
      event.body = read_notification(body);
    } else if (event.name == "member_joined") {
      event.body = read_member(body, MemberChange::Kind::kJoined);
    } else if (event.name == "member_draining") {
      event.body = read_member(body, MemberChange::Kind::kDraining);
    } else if (event.name == "member_left") {
      event.body = read_member(body, MemberChange::Kind::kLeft);
    } else if (event.name == "member_dead") {
      event.body = read_member(body, MemberChange::Kind::kDead);
    }
    return event;
  });
}

Error read_error(const Json& reply) {
  return reading(reply, [&] {
    auto error = value_of<Json>(reply, "error", Json::object());
    return Error(value_of<std::string>(error, "code", "INTERNAL"),
                 value_of<std::string>(error, "message", "the service gave no words"));
  });
}

std::string to_text(Json body) {
  replace_binaries(body);
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace penstock::client
