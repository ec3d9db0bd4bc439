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
#include "actors/node/shadows.hpp"
#include "actors/node/streams.hpp"

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
  std::size_t streams = 0;     // open
  std::size_t elsewhere = 0;   // transfers that other nodes carry out for clients of this one
  std::size_t for_others = 0;  // and this one for clients of others
};
nlohmann::json status_report(const NodeFacts& facts, const Gathered& gathered);

/// Of these, in their order.
nlohmann::json transfers_report(const Ledger& ledger, const Streams& streams,
                                const Shadows& shadows, const std::vector<TransferId>& ids,
                                const Gathered& gathered);
/// Those under way first, streams before the others, then the newest that ended: what fits on a
/// page.
nlohmann::json watched_transfers(const Ledger& ledger, const Streams& streams,
                                 const Shadows& shadows, const Gathered& gathered);

/// To a look at what this node carries out for another one.
DelegatedSeen delegated_report(Delegations& delegations, const NodeAsked& asked,
                               const LookAtDelegated& look, const Gathered& gathered);

nlohmann::json unfinished_report(const TransferResult& result, std::string_view state);
Error no_trace(TransferId transfer, std::size_t kept);

}  // namespace penstock
