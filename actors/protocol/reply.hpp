// Replies and events: JSON values that travel as msgpack, and those that every transfer causes as
// msgpack at once. Their shapes are in docs/protocol.md.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "actors/protocol/stages.hpp"
#include "transport/error.hpp"
#include "transport/poller/event.hpp"

namespace penstock {

/// {"v":1,"id":id,"ok":true, ...body}
nlohmann::json ok_reply(std::uint64_t id, nlohmann::json body = nlohmann::json::object());
/// {"v":1,"id":id,"ok":false,"error":{"code":...,"message":...}}
nlohmann::json error_reply(std::uint64_t id, const Error& error);
nlohmann::json to_json(const Error& error);

/// {"v":1,"id":id,"ok":true,"ids":[...]}, as msgpack: what was asked for is under way.
std::vector<std::uint8_t> accepted_reply(std::uint64_t id, const std::vector<std::uint64_t>& ids);

/// How a transfer ended; the body of its one terminal event.
struct TransferResult {
  enum class State : unsigned char { kDone, kFailed, kCancelled, kExpired };
  /// Whether the other node's pages are quiet too.
  enum class Remote : unsigned char { kQuiet, kUnreachable };

  std::uint64_t id = 0;
  std::string node;    // the other node
  std::string region;  // local region
  std::string remote_region;
  std::uint64_t remote_epoch = 0;  // 0: it never got to know it; not told
  std::string direction;           // "write" or "read"
  std::string lane;
  State state = State::kDone;
  Remote remote = Remote::kQuiet;
  std::uint64_t bytes = 0;   // that landed
  std::uint64_t writes = 0;  // one-sided operations
  std::uint64_t elapsed_us = 0;
  std::string path;  // a name of Path (path.hpp)
  std::vector<std::pair<std::string, CardShare>> cards;
  Error error;  // unless done
  /// On failure: what had landed, as (source offset, destination offset, length) u64 triples.
  std::vector<std::uint64_t> landed;
  bool landed_truncated = false;
  std::uint64_t stream = 0;  // of which it was a part; 0: of none
  std::uint32_t part = 0;
  /// Of a stream itself.
  struct Parts {
    std::uint32_t appended = 0;
    std::uint32_t done = 0;
  };
  std::optional<Parts> parts{};
  std::string on{};         // the node that carried it out, "" this one
  std::uint64_t on_as = 0;  // the transfer's id there, once it is known
  Stages stages{};          // not told with the end: the trace operation asks for them
};

std::string_view name_of(TransferResult::State state);
/// {"v":1,"event":"transfer","state":"done",...} as msgpack; `sequence` orders the node's events.
std::vector<std::uint8_t> transfer_event(const TransferResult& result, std::uint64_t sequence);

}  // namespace penstock
