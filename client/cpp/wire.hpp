// The wire format of docs/protocol.md, as the client writes and reads it. Not installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "client/cpp/penstock.hpp"

namespace penstock::client {

using Json = nlohmann::json;
using Message = std::vector<std::uint8_t>;

inline constexpr std::uint32_t kProtocolVersion = 1;

/// {"v":1,"id":id,"op":operation, ...fields}; `fields` must be an object.
Message encode_request(std::uint64_t id, std::string_view operation, Json fields);
/// The "transfer" request. Page and range lists go in as one block each, straight from the caller's
/// arrays. Throws Error INVALID_ARGUMENT for what cannot be said in the format: page lists of
/// different length.
Message encode_transfer(std::uint64_t id, std::span<const TransferSpec> specs);

Message encode_stream(std::uint64_t id, const StreamSpec& spec);
Message encode_append(std::uint64_t id, std::uint64_t stream, std::uint32_t number,
                      const Part& part);

/// A list of T as BIN.
template <class T>
Json packed(std::span<const T> values) {
  auto bytes = std::as_bytes(values);
  auto first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return Json::binary(std::vector<std::uint8_t>(first, first + bytes.size()));
}
/// Inverse of packed(); also takes an array of numbers. Throws Error INTERNAL.
std::vector<std::uint64_t> unpacked_u64(const Json& list);

/// Throws Error INTERNAL for what is not a msgpack map, or nested deeper than any message of ours.
Json decode_message(std::span<const std::uint8_t> message);

/// What a message is about, and all of it where it is one that every transfer causes: to make it
/// JSON first would cost more than the rest of its way.
struct Heard {
  bool is_event = false;
  std::uint64_t sequence = 0;             // of an event
  std::optional<TransferResult> ended{};  // of the end of a transfer
  // Of a reply:
  std::optional<std::uint64_t> answers{};  // the id of the request
  bool ok = false;
  std::vector<std::uint64_t> ids{};  // of what was accepted
};
/// Throws Error INTERNAL as decode_message() and the readers below.
Heard hear(std::span<const std::uint8_t> message);

// Readers are lenient: a missing field keeps its default, so that an older client understands a
// newer service. A field of the wrong type throws Error INTERNAL.
TransferResult read_transfer_result(const Json& body);
/// Whether "state" says that it ended.
bool is_terminal(const Json& body);
TransferTrace read_trace(const Json& body);
RegionInfo read_region(const Json& body);
NodeInfo read_node(const Json& body);
ServiceInfo read_service(const Json& hello);
Event read_event(const Json& body);
/// The error of a reply with "ok": false.
Error read_error(const Json& reply);

/// JSON text of a body, never throws: bytes that are no UTF-8 are replaced, BIN becomes hex.
std::string to_text(Json body);

}  // namespace penstock::client
