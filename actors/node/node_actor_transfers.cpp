// The node actor: transfers, from their acceptance to their end.
#include <spdlog/spdlog.h>

#include "actors/node/gpu_device.hpp"
#include "actors/node/node_actor_class.hpp"

namespace penstock {

Result<void> NodeActor::takes_work(const std::string& name) const {
  const auto found = members_.find(name);
  if (found == members_.end())
    return fail(ErrorCode::kNotFound,
                "no node '{}' is known here: `nodes` lists the members; check gossip.members",
                name);
  if (found->second.state == MemberState::kDraining)
    return fail(ErrorCode::kDraining, "node '{}' is draining: send new work to another node", name);
  return {};
}

Result<void> NodeActor::takes_delegations(const std::string& name) const {
  if (auto takes = takes_work(name); !takes) return takes;
  return can_be_asked(members_.at(name), kDelegateVersion,
                      "cannot carry out transfers for others: ask its own service");
}

Result<void> NodeActor::can_be_asked(const Member& member, std::uint32_t version,
                                     std::string_view otherwise) const {
  const std::string& node = member.record.node;
  if (!member.peer)
    return fail(member.state == MemberState::kDead ? ErrorCode::kPeerDead : ErrorCode::kPeerLeft,
                "node '{}' is not here ({})", node, name_of(member.state));
  if (std::min(member.record.wire_version, setup_.peer.wire_version) < version)
    return fail(ErrorCode::kUnsupported, "node '{}' speaks version {}, which {}", node,
                member.record.wire_version, otherwise);
  return {};
}

AcceptanceRules NodeActor::rules() const {
  return {{setup_.node, setup_.plan, setup_.default_deadline,
           [this](const std::string& name) { return takes_work(name); }, open_client_event},
          setup_.transfers_in_flight,
          setup_.client_transfers,
          drain_.has_value(),
          setup_.audit.get(),
          [this](const std::string& node, std::uint64_t bytes) {
            auto takes = takes_delegations(node);
            return takes ? third_party_.shadows().has_room(bytes) : takes;
          }};
}

void NodeActor::handle(const ClientId& client, std::uint64_t id, const TransferRequest& request) {
  auto accepted =
      accept(request, client, asker_, rules(), *setup_.regions, ledger_, received_, Clock::now());
  if (!accepted) return refuse(client, id, accepted.error());
  setup_.send(client, accepted_reply(id, accepted->ids));
  begin(*accepted);
}

void NodeActor::begin(Accepted& accepted) {
  setup_.set_load(static_cast<std::uint32_t>(ledger_.in_flight()));
  for (std::size_t i = 0; i < accepted.admitted.size(); ++i) {
    auto admitted = std::make_shared<Admitted>(std::move(accepted.admitted[i]));
    if (accepted.verify[i]) verifications_.expect(*admitted);
    const std::size_t device = (*admitted->local)->device_index;
    const auto& actor = children_.devices[device];
    if (admitted->copy_target || admitted->start_after)  // nothing for the poller, or not yet
      tell(actor, Admit{std::move(admitted)});
    else
      tell_on(setup_.devices[device]->lent, actor, Admit{std::move(admitted)});
  }
  for (Shadows::Asked& elsewhere : accepted.elsewhere)
    third_party_.shadows().start(std::move(elsewhere), Clock::now());
  if (!accepted.elsewhere.empty()) watch_delegated();
}

void NodeActor::transfer_ended(TransferResult& result) {
  const auto* entry = ledger_.find(result.id);
  if (!entry || entry->result) {
    spdlog::critical("transfer {} ended twice", result.id);
    return;
  }
  const ClientId client = entry->client;
  result.stages.enter(Stage::kNotification, Clock::now());
  const TimePoint now = Clock::now();
  const bool for_other = third_party_.delegations().ended(result, now);
  events_.publish_packed(Topic::kTransfers, transfer_event(result, events_.next()),
                         for_other ? nullptr : &client);
  result.stages.finish(now);
  monitor_.transfer_ended(result, std::chrono::system_clock::now());
  if (result.stream != 0) streams_.part_ended(result, now);
  ledger_.end(std::move(result), now);
  setup_.set_load(static_cast<std::uint32_t>(ledger_.in_flight()));
}

void NodeActor::notified(const Notification& notification) {
  std::vector<std::uint8_t> data(notification.data.begin(), notification.data.end());
  nlohmann::json event = {{"event", "notify"},
                          {"from", notification.from},
                          {"transfer", notification.transfer},
                          {"region", notification.region},
                          {"bytes", notification.bytes},
                          {"data", nlohmann::json::binary(std::move(data))}};
  if (notification.stream != 0) {
    event["stream"] = notification.stream;
    event["part"] = notification.part;
  }
  events_.publish(Topic::kNotify, std::move(event));
}

void NodeActor::handle(const ClientId& client, std::uint64_t id, const CancelRequest& request) {
  nlohmann::json unknown = nlohmann::json::array();
  for (TransferId transfer : request.ids)
    if (const auto* entry = ledger_.find(transfer); entry && !asker_.may_touch(entry->who))
      return refuse(
          client, id,
          asker_.refuse("transfer", std::to_string(transfer), setup_.audit.get()).value());
  for (TransferId transfer : request.ids) {
    const auto* entry = ledger_.find(transfer);
    if (!entry)
      unknown.push_back(transfer);
    else if (!entry->result)
      cancel(transfer, *entry);
  }
  ok(client, id, {{"unknown", std::move(unknown)}});
}

void NodeActor::cancel(TransferId transfer, const Ledger::Entry& entry) {
  if (streams_.cancel(transfer, Clock::now())) return;
  if (entry.device == Ledger::kElsewhere) {
    third_party_.shadows().cancel(transfer, Clock::now());
    return watch_delegated();
  }
  if (!verifications_.cancel(transfer))
    tell(children_.devices[entry.device], CancelTransfer{transfer});
}

void NodeActor::cancel_all() {
  if (drain_) {
    drain_->shut();
    refuse_opens();
  }
  for (TransferId transfer : ledger_.newest(SIZE_MAX))
    if (const auto* entry = ledger_.find(transfer); entry && !entry->result)
      cancel(transfer, *entry);
}

void NodeActor::handle(const ClientId& client, std::uint64_t id, const SubscribeRequest& request) {
  // The reply goes first: the client then knows which events are old.
  const std::uint64_t newest = events_.next() - 1;
  if (auto valid = events_.subscribe(client, request.topics, request.since); !valid)
    return refuse(client, id, valid.error());
  ok(client, id, {{"seq", newest}});
}

}  // namespace penstock
