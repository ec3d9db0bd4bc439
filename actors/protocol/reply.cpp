#include "actors/protocol/reply.hpp"

#include <cstring>

#include "actors/protocol/request.hpp"

namespace penstock {
namespace {

std::string_view name_of(TransferResult::Remote remote) {
  return remote == TransferResult::Remote::kQuiet ? "quiet" : "unreachable";
}

nlohmann::json blob_of(const std::vector<std::uint64_t>& values) {
  nlohmann::json::binary_t::container_type bytes(values.size() * sizeof(std::uint64_t));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return nlohmann::json::binary(std::move(bytes));
}

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

nlohmann::json transfer_event(const TransferResult& result, std::uint64_t sequence) {
  nlohmann::json cards = nlohmann::json::array();
  for (const auto& [name, share] : result.cards)
    cards.push_back({{"name", name}, {"bytes", share.bytes}, {"writes", share.writes}});
  nlohmann::json event = {{"v", kProtocolVersion},
                          {"event", "transfer"},
                          {"seq", sequence},
                          {"id", result.id},
                          {"node", result.node},
                          {"region", result.region},
                          {"remote_region", result.remote_region},
                          {"direction", result.direction},
                          {"lane", result.lane},
                          {"state", name_of(result.state)},
                          {"remote", name_of(result.remote)},
                          {"bytes", result.bytes},
                          {"writes", result.writes},
                          {"elapsed_us", result.elapsed_us},
                          {"path", result.path},
                          {"cards", std::move(cards)}};
  if (!result.on.empty()) {
    event["on"] = result.on;
    if (result.on_as != 0) event["on_as"] = result.on_as;
  }
  if (result.stream != 0) {
    event["stream"] = result.stream;
    event["part"] = result.part;
  }
  if (result.parts) {
    event["parts"] = result.parts->appended;
    event["parts_done"] = result.parts->done;
  }
  if (result.state == TransferResult::State::kDone) return event;
  event["error"] = to_json(result.error);
  event["landed"] = blob_of(result.landed);
  event["landed_truncated"] = result.landed_truncated;
  return event;
}

}  // namespace penstock
