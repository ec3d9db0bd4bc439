#include "actors/protocol/reply.hpp"

#include <cstddef>
#include <msgpack.hpp>
#include <span>
#include <string_view>
#include <type_traits>

#include "actors/protocol/request.hpp"

namespace penstock {
namespace {

using namespace std::string_view_literals;

std::string_view name_of(TransferResult::Remote remote) {
  return remote == TransferResult::Remote::kQuiet ? "quiet" : "unreachable";
}

/// A msgpack map, written field by field: what is told of every transfer is not made a JSON value
/// first.
class Packed {
 public:
  Packed() { packer_.pack_map(kMap16); }  // with a count of two bytes, known in the end

  template <class Value>
  Packed& operator()(std::string_view key, const Value& value) {
    ++fields_;
    put(key, value);
    return *this;
  }
  std::vector<std::uint8_t> take() const {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(buffer_.data());
    std::vector<std::uint8_t> message(bytes, bytes + buffer_.size());
    message[1] = static_cast<std::uint8_t>(fields_ >> 8);
    message[2] = static_cast<std::uint8_t>(fields_);
    return message;
  }

 private:
  static constexpr std::uint32_t kMap16 = 0xffff;

  template <class Value>
  void put(std::string_view key, const Value& value) {
    put(key);
    put(value);
  }
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void put(Number value) { packer_.pack(value); }
  void put(std::string_view text) {
    packer_.pack_str(static_cast<std::uint32_t>(text.size()));
    packer_.pack_str_body(text.data(), static_cast<std::uint32_t>(text.size()));
  }
  void put(std::span<const std::byte> blob) {
    packer_.pack_bin(static_cast<std::uint32_t>(blob.size()));
    packer_.pack_bin_body(reinterpret_cast<const char*>(blob.data()),
                          static_cast<std::uint32_t>(blob.size()));
  }
  void put(const std::vector<std::uint64_t>& numbers) {
    packer_.pack_array(static_cast<std::uint32_t>(numbers.size()));
    for (const std::uint64_t number : numbers) put(number);
  }
  void put(const std::vector<std::pair<std::string, CardShare>>& cards) {
    packer_.pack_array(static_cast<std::uint32_t>(cards.size()));
    for (const auto& [name, share] : cards) {
      packer_.pack_map(3);
      put("name", name);
      put("bytes", share.bytes);
      put("writes", share.writes);
    }
  }
  void put(const Error& error) {
    packer_.pack_map(2);
    put("code", penstock::name_of(error.code));
    put("message", error.message);
  }

  msgpack::sbuffer buffer_{512};
  msgpack::packer<msgpack::sbuffer> packer_{buffer_};
  std::uint16_t fields_ = 0;
};

}  // namespace

nlohmann::json ok_reply(std::uint64_t id, nlohmann::json body) {
  nlohmann::json reply = body.is_object() ? std::move(body) : nlohmann::json::object();
  reply["v"] = kProtocolVersion;
  reply["id"] = id;
  reply["ok"] = true;
  return reply;
}

nlohmann::json error_reply(std::uint64_t id, const Error& error) {
  return {{"v", kProtocolVersion}, {"id", id}, {"ok", false}, {"error", to_json(error)}};
}

nlohmann::json to_json(const Error& error) {
  return {{"code", name_of(error.code)}, {"message", error.message}};
}

std::string_view name_of(TransferResult::State state) {
  switch (state) {
    case TransferResult::State::kDone:
      return "done";
    case TransferResult::State::kFailed:
      return "failed";
    case TransferResult::State::kCancelled:
      return "cancelled";
    case TransferResult::State::kExpired:
      return "expired";
  }
  return "failed";
}

std::vector<std::uint8_t> accepted_reply(std::uint64_t id, const std::vector<std::uint64_t>& ids) {
  Packed out;
  out("v", kProtocolVersion)("id", id)("ok", true)("ids", ids);
  return out.take();
}

std::vector<std::uint8_t> transfer_event(const TransferResult& result, std::uint64_t sequence) {
  Packed out;
  out("v", kProtocolVersion)("event", "transfer"sv)("seq", sequence)("id", result.id);
  out("node", result.node)("region", result.region)("remote_region", result.remote_region);
  out("direction", result.direction)("lane", result.lane)("state", name_of(result.state));
  out("remote", name_of(result.remote))("bytes", result.bytes)("writes", result.writes);
  out("elapsed_us", result.elapsed_us)("path", result.path)("cards", result.cards);
  if (!result.on.empty()) out("on", result.on);
  if (!result.on.empty() && result.on_as != 0) out("on_as", result.on_as);
  if (result.stream != 0) out("stream", result.stream)("part", result.part);
  if (result.parts) out("parts", result.parts->appended)("parts_done", result.parts->done);
  if (result.state == TransferResult::State::kDone) return out.take();
  out("error", result.error)("landed", std::as_bytes(std::span(result.landed)));
  out("landed_truncated", result.landed_truncated);
  return out.take();
}

}  // namespace penstock
