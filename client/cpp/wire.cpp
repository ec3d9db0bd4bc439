// What the service sends, as the client reads it. wire_requests.cpp writes requests.
#include "client/cpp/wire.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <msgpack.hpp>

namespace penstock::client {
namespace {

constexpr std::size_t kMaxDepth = 16;

Error not_understood(const std::string& what) {
  return Error("INTERNAL", "the service's message cannot be understood: " + what +
                               "; do client and service have the same version?");
}

/// The message as it came, for as long as one of these lives: one at a time of each thread.
class Unpacked {
 public:
  explicit Unpacked(std::span<const std::uint8_t> message) {
    // Lists that say they are longer than the message would cost memory before that is found out.
    const msgpack::unpack_limit limit(message.size(), message.size(), message.size(),
                                      message.size(), message.size(), kMaxDepth);
    const auto in_place = [](msgpack::type::object_type, std::size_t, void*) { return true; };
    std::size_t read = 0;
    try {
      body = msgpack::unpack(zone(), reinterpret_cast<const char*>(message.data()), message.size(),
                             read, in_place, nullptr, limit);
    } catch (const std::exception&) {  // of msgpack, or for want of memory
      read = 0;
    }
    if (read == message.size() && read > 0 && body.type == msgpack::type::MAP) return;
    zone().clear();
    throw not_understood("it is no msgpack map, or nested too deep");
  }
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;
  ~Unpacked() { zone().clear(); }

  msgpack::object body;

 private:
  /// Each message would cost a page of memory, taken and given back.
  static msgpack::zone& zone() {
    thread_local msgpack::zone memory;
    return memory;
  }
};

// What is read of a body, be it JSON or a map as it came.

/// Finds most of what is asked for in the order in which it came at its first look, and sees of
/// most of what is missing that it is without any.
class Map {
 public:
  /// Throws Error INTERNAL when it is none.
  explicit Map(const msgpack::object& body) {
    if (body.type != msgpack::type::MAP) throw not_understood("a map was expected");
    if (body.via.map.size > 0) pairs_ = {body.via.map.ptr, body.via.map.size};
    for (const auto& pair : pairs_) there_ |= bit_of(name_of(pair));
  }

  const msgpack::object* find(std::string_view name) const {
    if ((there_ & bit_of(name)) == 0) return nullptr;
    for (std::size_t looks = 0; looks < pairs_.size(); ++looks) {
      const auto& pair = pairs_[next_];
      next_ = next_ + 1 < pairs_.size() ? next_ + 1 : 0;
      if (name_of(pair) == name) return &pair.val;
    }
    return nullptr;
  }

 private:
  /// "", which nobody asks for: it is no name.
  static std::string_view name_of(const msgpack::object_kv& pair) {
    if (pair.key.type != msgpack::type::STR) return {};
    return {pair.key.via.str.ptr, pair.key.via.str.size};
  }
  static std::uint64_t bit_of(std::string_view name) {
    const std::size_t last = name.empty() ? 0 : static_cast<unsigned char>(name.back());
    return std::uint64_t{1} << ((last + 5 * name.size()) % 64);
  }

  std::span<const msgpack::object_kv> pairs_;
  std::uint64_t there_ = 0;  // a bit for each name
  mutable std::size_t next_ = 0;
};

const Json& map_of(const Json& body) {
  if (!body.is_object()) throw not_understood("a map was expected");
  return body;
}
Map map_of(const msgpack::object& body) { return Map(body); }
const Map& map_of(const Map& body) { return body; }

/// Null: it is missing, or null.
const Json* field_of(const Json& body, std::string_view key) {
  const auto found = map_of(body).find(key);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}
const msgpack::object* field_of(const Map& body, std::string_view key) {
  const auto* found = body.find(key);
  return found == nullptr || found->type == msgpack::type::NIL ? nullptr : found;
}

template <class T>
T as(const Json& value) {
  return value.get<T>();
}
template <class T>
T as(const msgpack::object& value) {
  return value.as<T>();
}

std::span<const msgpack::object> items_of(const msgpack::object& list) {
  if (list.type != msgpack::type::ARRAY) throw not_understood("a list was expected");
  return {list.via.array.ptr, list.via.array.size};
}
const Json& items_of(const Json& list) { return list; }

/// Runs a reader; what is thrown for a wrong type becomes Error INTERNAL.
template <class Body, class Reader>
auto reading(const Body& body, Reader&& reader) {
  map_of(body);
  try {
    return reader();
  } catch (const Json::exception& problem) {
    throw not_understood(problem.what());
  } catch (const msgpack::type_error&) {
    throw not_understood("a field has another type");
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
template <class T, class Body>
T value_of(const Body& body, std::string_view key, T fallback) {
  const auto* found = field_of(body, key);
  return found == nullptr ? fallback : as<T>(*found);
}

template <class Bytes>
std::vector<std::uint64_t> words_of(const Bytes& bytes) {
  if (bytes.size() % 8 != 0) throw not_understood("a list of u64 has a broken length");
  std::vector<std::uint64_t> words(bytes.size() / 8);
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

std::vector<std::uint64_t> words_in(const Json& list) { return unpacked_u64(list); }
std::vector<std::uint64_t> words_in(const msgpack::object& list) {
  if (list.type != msgpack::type::BIN) return list.as<std::vector<std::uint64_t>>();
  return words_of(std::span(list.via.bin.ptr, list.via.bin.size));
}

template <class Body>
std::vector<Range> read_landed(const Body& body) {
  const auto* found = field_of(body, "landed");
  if (found == nullptr) return {};
  auto words = words_in(*found);
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

std::vector<std::uint64_t> unpacked_u64(const Json& list) {
  if (!list.is_binary()) {
    try {
      return list.get<std::vector<std::uint64_t>>();
    } catch (const Json::exception& problem) {
      throw not_understood(problem.what());
    }
  }
  return words_of(list.get_binary());
}

Json decode_message(std::span<const std::uint8_t> message) {
  { const Unpacked checked(message); }  // the JSON reader recurses
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

namespace {

template <class Body>
TransferResult transfer_result_of(const Body& body) {
  return reading(body, [&] {
    TransferResult result;
    result.id = value_of<std::uint64_t>(body, "id", 0);
    result.node = value_of<std::string>(body, "node", "");
    result.region = value_of<std::string>(body, "region", "");
    result.remote_region = value_of<std::string>(body, "remote_region", "");
    result.direction = value_of<std::string>(body, "direction", "");
    result.lane = value_of<std::string>(body, "lane", "");
    result.state = read_state(value_of<std::string>(body, "state", ""));
    if (value_of<std::string>(body, "remote", "quiet") == "unreachable") {
      result.remote = TransferResult::Remote::kUnreachable;
    }
    result.bytes = value_of<std::uint64_t>(body, "bytes", 0);
    result.writes = value_of<std::uint64_t>(body, "writes", 0);
    result.elapsed_us = value_of<std::uint64_t>(body, "elapsed_us", 0);
    result.path = value_of<std::string>(body, "path", "");
    if (const auto* cards = field_of(body, "cards"))
      for (const auto& item : items_of(*cards)) {
        const auto& card = map_of(item);
        result.cards.push_back({value_of<std::string>(card, "name", ""),
                                value_of<std::uint64_t>(card, "bytes", 0),
                                value_of<std::uint64_t>(card, "writes", 0)});
      }
    if (const auto* field = field_of(body, "error")) {
      const auto& error = map_of(*field);
      result.error_code = value_of<std::string>(error, "code", "");
      result.error_message = value_of<std::string>(error, "message", "");
    }
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

/// Whoever wants some and finds none knows that something is wrong.
std::vector<std::uint64_t> ids_of(const Map& body) {
  const auto* ids = field_of(body, "ids");
  if (ids == nullptr) return {};
  try {
    return words_in(*ids);
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

TransferResult read_transfer_result(const Json& body) { return transfer_result_of(body); }

Heard hear(std::span<const std::uint8_t> message) {
  const Unpacked unpacked(message);
  const Map body(unpacked.body);
  return reading(body, [&] {
    Heard heard;
    if (const auto* event = field_of(body, "event")) {
      heard.is_event = true;
      heard.sequence = value_of<std::uint64_t>(body, "seq", 0);
      if (as<std::string>(*event) == "transfer") heard.ended = transfer_result_of(body);
      return heard;
    }
    if (const auto* id = field_of(body, "id"); id && id->type == msgpack::type::POSITIVE_INTEGER)
      heard.answers = id->via.u64;
    const auto* ok = field_of(body, "ok");
    heard.ok = ok != nullptr && ok->type == msgpack::type::BOOLEAN && ok->via.boolean;
    heard.ids = ids_of(body);
    return heard;
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
