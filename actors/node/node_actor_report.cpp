// The node actor: what it tells of itself and its transfers.
#include "actors/node/member_report.hpp"
#include "actors/node/node_actor_class.hpp"
#include "actors/node/status_report.hpp"

namespace penstock {

void NodeActor::handle(const ClientId& client, std::uint64_t id, const StatusRequest&) {
  gather(*this, children_,
         [this, client, id](const Gathered& gathered) { ok(client, id, status(gathered)); });
}

nlohmann::json NodeActor::status(const Gathered& gathered) const {
  return status_report(
      {setup_, ledger_.totals(), monitor_, drain_.has_value(), started_, events_.subscribers(),
       streams_.size(), third_party_.shadows().size(), third_party_.delegations().size()},
      gathered);
}

caf::typed_response_promise<Watched> NodeActor::watched() {
  auto promise = make_response_promise<Watched>();
  ledger_.forget(Clock::now());
  gather(*this, children_, [this, promise](const Gathered& gathered) mutable {
    promise.deliver(Watched{std::make_shared<nlohmann::json>(nlohmann::json{
        {"status", status(gathered)},
        {"nodes", nodes()},
        {"transfers", watched_transfers(ledger_, streams_, third_party_.shadows(), gathered)},
        {"counts", monitor_.counts()}})});
  });
  return promise;
}

void NodeActor::handle(const ClientId& client, std::uint64_t id, const TraceRequest& request) {
  if (const auto shadow = third_party_.shadows().unfinished(request.transfer))
    return ok(client, id, unfinished_report(shadow->result, shadow->state));
  find_trace(*this, children_, {ledger_, streams_, monitor_, request.transfer, setup_.traces_kept},
             reply_later(client, id));
}

void NodeActor::handle(const ClientId& client, std::uint64_t id, const TransfersRequest& request) {
  ledger_.forget(Clock::now());
  const bool watch = request.under_way_first && request.ids.empty();
  const auto ids = request.ids.empty() ? ledger_.newest(request.limit) : request.ids;
  gather(*this, children_, [this, client, id, ids, watch](const Gathered& gathered) {
    ok(client, id,
       {{"transfers",
         watch ? watched_transfers(ledger_, streams_, third_party_.shadows(), gathered)
               : transfers_report(ledger_, streams_, third_party_.shadows(), ids, gathered)}});
  });
}

void NodeActor::handle(const ClientId& client, std::uint64_t id, const NodesRequest&) {
  ok(client, id, {{"nodes", nodes()}});
}

nlohmann::json NodeActor::nodes() const {
  nlohmann::json nodes = nlohmann::json::array();
  nodes.push_back({{"name", setup_.node},
                   {"incarnation", setup_.incarnation},
                   {"state", drain_ ? "draining" : "self"},
                   {"wire_version", setup_.peer.wire_version},
                   {"provider", setup_.provider},
                   {"service_version", setup_.service_version}});
  const auto seen = setup_.members();
  for (const auto& [name, member] : members_)
    nodes.push_back(member_report(
        {member.record, member.state, member.connected, setup_.peer.wire_version}, seen));
  return nodes;
}

}  // namespace penstock
