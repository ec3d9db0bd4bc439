// The node actor: transfers that others carry out for us, and we for them.
#include "actors/device/device_actor.hpp"
#include "actors/node/node_actor_class.hpp"

namespace penstock {
namespace {

constexpr Milliseconds kOpenOfDeadline{2000};

}  // namespace

void NodeActor::node_asked(const NodeAsked& asked) {
  const auto found = members_.find(asked.node);
  if (found == members_.end() || found->second.record.incarnation != asked.peer) return;
  const caf::actor peer = found->second.peer;
  if (!peer) return;  // it departed just now; it asks again if it lives
  if (const auto* look = std::get_if<LookAtDelegated>(asked.question.get()))
    return tell_progress(asked, *look, peer);
  tell(peer, PeerAnswer{asked.sequence,
                        third_party_.asked(asked.node, asked.peer, *asked.question, Clock::now())});
  watch_delegated();
}

void NodeActor::tell_progress(const NodeAsked& asked, const LookAtDelegated& look,
                              const caf::actor& peer) {
  gather(*this, children_, [this, asked, look, peer](const Gathered& gathered) {
    tell(peer, PeerAnswer{asked.sequence,
                          delegated_report(third_party_.delegations(), asked, look, gathered)});
  });
}

void NodeActor::shadow_ended(TransferResult result) {
  const auto executor = members_.find(result.on);
  if (result.remote == TransferResult::Remote::kQuiet || result.node != setup_.node ||
      executor == members_.end())
    return transfer_ended(result);
  result.stages.enter(Stage::kRecovery, Clock::now());
  // It may only be silent, and have it queued or under way: nothing of it is to come in any more.
  if (result.on_as != 0 && !executor->second.gone)
    for (const auto& device : children_.devices)
      tell(device, GiveUpInbound{executor->second.record.incarnation, result.on_as, result.error});
  tell_at(this, Clock::now() + kLook,
          OwnPagesCheck{std::make_shared<TransferResult>(std::move(result)),
                        executor->second.record.incarnation,
                        Clock::now() + setup_.third_party.own_pages});
}

void NodeActor::check_own_pages(const OwnPagesCheck& check) {
  auto open = std::make_shared<std::size_t>(0);
  auto waiting = std::make_shared<std::size_t>(children_.devices.size());
  const auto answered = [this, check, open, waiting](std::size_t of_device) {
    *open += of_device;
    if (--*waiting > 0) return;
    if (*open > 0 && Clock::now() < check.until) return tell_at(this, Clock::now() + kLook, check);
    // Of the executor's own pages only its end says so.
    if (*open == 0 && is_gone(check.result->on, check.executor))
      check.result->remote = TransferResult::Remote::kQuiet;
    transfer_ended(*check.result);
  };
  for (const auto& device : children_.devices)
    request(device, kOpenOfDeadline, AskOpenOf{check.executor, check.result->on_as})
        .then([answered](const OpenOf& of) { answered(of.count); },
              [answered](const caf::error&) { answered(1); });
}

bool NodeActor::is_gone(const std::string& node, Incarnation incarnation) const {
  const auto member = members_.find(node);
  return member != members_.end() &&
         (member->second.gone || member->second.record.incarnation != incarnation);
}

void NodeActor::watch_delegated() {
  const TimePoint next = third_party_.shadows().next_tick();
  if (next >= delegated_due_) return;
  delegated_due_ = next;
  tell_at(this, next, CheckDelegated{next});
}

void NodeActor::check_delegated(TimePoint due) {
  if (due != delegated_due_) return;  // another, earlier one took its place
  delegated_due_ = TimePoint::max();
  third_party_.shadows().tick(Clock::now());
  watch_delegated();
}

}  // namespace penstock
