#include "actors/node/event_log.hpp"

namespace penstock {
namespace {

std::optional<Topic> topic_of(const std::string& name) {
  if (name == "transfers") return Topic::kTransfers;
  if (name == "notify") return Topic::kNotify;
  if (name == "members") return Topic::kMembers;
  return std::nullopt;
}

}  // namespace

void EventLog::publish(Topic topic, nlohmann::json event) {
  event["v"] = kProtocolVersion;
  event["seq"] = next_;
  publish_packed(topic, nlohmann::json::to_msgpack(event), nullptr);
}

void EventLog::publish_packed(Topic topic, std::vector<std::uint8_t> event, const ClientId* owner) {
  for (const auto& [client, topics] : subscribers_)
    if (topics.contains(topic) && !(owner && client == *owner)) send_(client, event);
  if (owner) send_(*owner, event);
  kept_.push_back({next_++, topic, owner ? *owner : ClientId(), std::move(event)});
  if (kept_.size() > keep_) kept_.pop_front();
}

Result<std::uint64_t> EventLog::subscribe(const ClientId& client,
                                          const std::vector<std::string>& topics,
                                          std::optional<std::uint64_t> since) {
  std::set<Topic> wanted;
  for (const std::string& name : topics) {
    const auto topic = topic_of(name);
    if (!topic)
      return fail(ErrorCode::kInvalidArgument,
                  "unknown topic '{}': there are transfers, notify and members", name);
    wanted.insert(*topic);
  }
  if (since)
    for (const Kept& kept : kept_)
      if (kept.sequence > *since && (wanted.contains(kept.topic) || kept.owner == client))
        send_(client, kept.event);
  if (wanted.empty())
    subscribers_.erase(client);
  else
    subscribers_[client] = std::move(wanted);
  return next_ - 1;
}

}  // namespace penstock
