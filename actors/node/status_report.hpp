// What devices and cards say of themselves, as the status and transfers replies show it.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "actors/local_device.hpp"
#include "actors/messages.hpp"

namespace penstock {

/// The answers of all devices and cards, in the node's order.
struct Gathered {
  std::vector<DeviceSnapshot> devices;
  std::vector<std::vector<NicHealth>> nics;
  std::size_t unanswered = 0;  // devices that did not answer in time: theirs is empty
};

/// {"devices":[{name, cards:[...]}], "transfers":{"queued","running","inbound"}}
nlohmann::json device_report(const std::vector<std::shared_ptr<LocalDevice>>& devices,
                             const Gathered& gathered);

/// The transfers that are under way, by id.
std::map<TransferId, nlohmann::json> states_of(const Gathered& gathered);

}  // namespace penstock
