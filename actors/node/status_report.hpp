// What a node says of itself, its devices, cards and transfers: the bodies of the status, transfers
// and trace replies, and what those who watch it see.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "actors/local_device.hpp"
#include "actors/messages.hpp"
#include "actors/node/node_actor.hpp"

namespace penstock {

/// The answers of all devices and cards, in the node's order.
struct Gathered {
  std::vector<DeviceSnapshot> devices;
  std::vector<std::vector<NicHealth>> nics;
  std::size_t unanswered = 0;  // devices that did not answer in time: theirs is empty
};

/// What the node actor knows by itself.
struct NodeFacts {
  const NodeActorSetup& setup;
  const Ledger::Totals& totals;
  const Monitor& monitor;
  bool draining = false;
  TimePoint started;
  std::size_t subscribers = 0;
};
nlohmann::json status_report(const NodeFacts& facts, const Gathered& gathered);

/// Of these, in their order.
nlohmann::json transfers_report(const Ledger& ledger, const std::vector<TransferId>& ids,
                                const Gathered& gathered);
/// Those under way first, then the newest that ended: what fits on a page.
nlohmann::json watched_transfers(const Ledger& ledger, const Gathered& gathered);

nlohmann::json unfinished_report(const Outbound::Unfinished& transfer);
Error no_trace(TransferId transfer, std::size_t kept);

}  // namespace penstock
