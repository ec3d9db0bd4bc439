#include "actors/node/node_actor.hpp"

#include <spdlog/spdlog.h>

#include "actors/node/gpu_device.hpp"
#include "actors/node/node_actor_class.hpp"
#include "actors/peer/peer_actor.hpp"
#include "transport/ring/shared_ring.hpp"

namespace penstock {

caf::behavior NodeActor::make_behavior() {
  return {
      [this](const NodeChildren& children) {
        children_ = children;
        setup_.desk->accept = [this](const ClientId& client, Request& request) {
          return accept_at_desk(client, request);
        };
      },
      [this](const ClientRequest& request) {
        heard(request.client, *request.request);
        std::visit([&](auto& body) { handle(request.client, request.request->id, body); },
                   request.request->body);
      },
      [this](const ClientGone& gone) { events_.unsubscribe(gone.client); },
      [this](const ReplyReady& ready) {
        setup_.send(ready.client, nlohmann::json::to_msgpack(ready.reply));
      },
      [this](const TransferEnded& ended) {
        if (!verifications_.take(*ended.result, Clock::now())) transfer_ended(*ended.result);
      },
      [this](const BatchCompared& batch) { verifications_.compared(batch, Clock::now()); },
      [this](const Notified& notified) { this->notified(notified.notification); },
      [this](const MemberChanged& changed) { member_changed(changed.change); },
      [this](const PeerReady& ready) { peer_ready(ready); },
      [this](StrangerSpoke& spoke) { stranger_spoke(spoke.message); },
      [this](const PeerTrouble& trouble) {
        spdlog::debug("a link to {} failed: membership asks it at once", trouble.node);
        setup_.suspect(trouble.node);
      },
      [this](const CheckLeases& check) { check_leases(check.due); },
      [this](const CheckStreams& check) { check_streams(check.due); },
      [this](const CheckDelegated& check) { check_delegated(check.due); },
      [this](const OwnPagesCheck& check) { check_own_pages(check); },
      [this](const NodeAsked& asked) { node_asked(asked); },
      [this](const NodeAnswered& answered) {
        third_party_.answered(answered.token, *answered.answer, Clock::now());
        watch_delegated();
      },
      [this](const CheckReleases&) { memory_.look(); },
      [this](const RegionsOrphaned&) { memory_.release_orphans(); },
      [this](const BeginDrain&) { return drain(); },
      [this](const DrainCheck&) { drain_check(); },
      [this](const DrainAsked& asked) { drain_asked(asked); },
      [this](const ForgetDeparted&) { forget_departed(); },
      [this](const CancelAll&) { cancel_all(); },
      [this](const AskWatched&) { return watched(); },
  };
}

void NodeActor::ok(const ClientId& client, std::uint64_t id, nlohmann::json body) {
  setup_.send(client, nlohmann::json::to_msgpack(ok_reply(id, std::move(body))));
}

void NodeActor::refuse(const ClientId& client, std::uint64_t id, const Error& error) {
  setup_.send(client, nlohmann::json::to_msgpack(error_reply(id, error)));
}

RegionJobs::Reply NodeActor::reply_later(const ClientId& client, std::uint64_t id) {
  return [self = caf::actor(this), client, id](Result<nlohmann::json> result) {
    tell(self, ReplyReady{client, result ? ok_reply(id, std::move(*result))
                                         : error_reply(id, result.error())});
  };
}

Verifications::Port NodeActor::verifications_port() {
  return {.work =
              [this](std::size_t device, std::function<void()> job) {
                setup_.devices[device]->copier->post(std::move(job));
              },
          .peer =
              [this](const std::string& node) {
                const auto found = members_.find(node);
                return found == members_.end() ? caf::actor() : found->second.peer;
              },
          .self = [this] { return caf::actor(this); },
          .ended = [this](TransferResult result) { transfer_ended(result); }};
}

Streams::Port NodeActor::streams_port() {
  return {.cancel =
              [this](TransferId part) {
                if (const auto* entry = ledger_.find(part); entry && !entry->result)
                  cancel(part, *entry);
              },
          .ended = [this](TransferResult result) { transfer_ended(result); },
          .remembered = [this](TransferId stream) { return ledger_.find(stream) != nullptr; }};
}

ThirdPartyTransfers::Port NodeActor::third_party_port() {
  return {.ask =
              [this](const std::string& node, std::uint64_t token, Question question,
                     TimePoint deadline) {
                const auto found = members_.find(node);
                if (found != members_.end() && found->second.peer)
                  return tell(found->second.peer, AskForNode{token, std::move(question), deadline});
                tell(caf::actor(this),
                     NodeAnswered{token, std::make_shared<Result<Answer>>(
                                             fail(ErrorCode::kPeerLeft, "no node '{}'", node))});
              },
          .labels =
              [this](const std::string& node) {
                const auto found = members_.find(node);
                return found == members_.end() ? std::map<std::string, std::string>()
                                               : found->second.record.labels;
              },
          .run = [this](const TransferRequest& request, const ClientId& client, const Asker& asker,
                        TransferId shadow) -> Result<TransferId> {
            const TimePoint now = Clock::now();
            auto accepted =
                accept(request, client, asker, rules(), *setup_.regions, ledger_, now, now);
            if (!accepted) return tl::unexpected(accepted.error());
            for (Admitted& admitted : accepted->admitted) admitted.shadow = shadow;
            begin(*accepted);
            return accepted->ids.front();
          },
          .cancel =
              [this](TransferId transfer) {
                if (const auto* entry = ledger_.find(transfer); entry && !entry->result)
                  cancel(transfer, *entry);
              },
          .ended = [this](TransferResult result) { shadow_ended(std::move(result)); }};
}

MemoryRequests::Port NodeActor::memory_port() {
  return {.evict =
              [this](const std::string& region) {
                verifications_.cancel_region(region);
                for (const auto& device : children_.devices) tell(device, EvictRegion{region});
              },
          .look_later = [this] { tell_at(this, Clock::now() + kLook, CheckReleases{}); },
          .orphaned = [this] { tell(caf::actor(this), RegionsOrphaned{}); }};
}

void NodeActor::heard(const ClientId& client, const Request& request) {
  received_ = request.received;
  asker_ = {request.who, request.role};
  leases_.heard(client, Clock::now());
}

bool NodeActor::accept_at_desk(const ClientId& client, Request& request) {
  heard(client, request);
  handle(client, request.id, std::get<TransferRequest>(request.body));
  return true;
}

void NodeActor::handle(const ClientId& client, std::uint64_t id, const HelloRequest& request) {
  spdlog::debug("client '{}' says hello", request.client);
  leases_.grant(client, Milliseconds(request.lease_ms), Clock::now());
  watch_leases();
  nlohmann::json devices = nlohmann::json::array();
  for (const auto& device : setup_.devices) devices.push_back(device->name);
  ok(client, id,
     {{"version", kProtocolVersion},
      {"node", setup_.node},
      {"incarnation", setup_.incarnation},
      {"service_version", setup_.service_version},
      {"devices", std::move(devices)},
      {"descriptor_socket", setup_.descriptors ? setup_.descriptors->path().string() : ""},
      {"ring", ring_report(request)}});
}

nlohmann::json NodeActor::ring_report(const HelloRequest& request) const {
  if (!setup_.ring_socket) return nullptr;
  nlohmann::json ring{{"version", kRingVersion}};
  if (request.ring_token == 0) return ring;
  ring["socket"] = setup_.ring_socket->path().string();
  ring["token"] = request.ring_token;
  return ring;
}

void NodeActor::watch_leases() {
  const TimePoint next = leases_.next();
  if (next >= leases_due_) return;
  leases_due_ = next;
  tell_at(this, next, CheckLeases{next});
}

void NodeActor::check_leases(TimePoint due) {
  if (due != leases_due_) return;  // another, earlier one took its place
  leases_due_ = TimePoint::max();
  for (const ClientId& client : leases_.expired(due, Clock::now())) client_died(client);
  watch_leases();
}

void NodeActor::client_died(const ClientId& client) {
  std::size_t transfers = 0;
  events_.unsubscribe(client);
  for (TransferId transfer : ledger_.newest(SIZE_MAX))
    if (const auto* entry = ledger_.find(transfer);
        entry && !entry->result && entry->client == client) {
      cancel(transfer, *entry);
      ++transfers;
    }
  if (setup_.end_ring) setup_.end_ring(client);
  const std::size_t regions = memory_.client_died(client);
  // One that closed leaves its lease behind, too, and mostly nothing else.
  spdlog::log(transfers + regions > 0 ? spdlog::level::warn : spdlog::level::debug,
              "a client was not heard within its lease: {} transfers cancelled, {} regions "
              "released",
              transfers, regions);
}

caf::actor spawn_node(caf::actor_system& system, NodeActorSetup setup) {
  return system.spawn<NodeActor>(std::move(setup));
}

}  // namespace penstock
