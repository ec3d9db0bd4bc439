// The node actor: transfers that others carry out for us, and we for them.
#include "actors/device/device_actor.hpp"
#include "actors/node/node_actor_class.hpp"

namespace penstock {
namespace {

constexpr Milliseconds kOpenForDeadline{2000};

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
  // It may only be silent, and have it under way.
  for (const auto& device : children_.devices)
    tell(device, GiveUpInbound{executor->second.record.incarnation, result.id, result.error});
  tell_at(this, Clock::now() + kLook,
          OwnPagesCheck{std::make_shared<TransferResult>(std::move(result)),
                        executor->second.record.incarnation,
                        Clock::now() + setup_.third_party.own_pages});
}

void NodeActor::check_own_pages(const OwnPagesCheck& check) {
  auto open = std::make_shared<bool>(false);
  auto waiting = std::make_shared<std::size_t>(children_.devices.size());
  const auto answered = [this, check, open, waiting](bool on_device) {
    *open = *open || on_device;
    if (--*waiting > 0) return;
    if (*open && Clock::now() < check.until) return tell_at(this, Clock::now() + kLook, check);
    // Not `quiet`: a run that is taken for dead may only stand still, with data that it has yet to
    // put into pages of its own.
    transfer_ended(*check.result);
  };
  for (const auto& device : children_.devices)
    request(device, kOpenForDeadline, AskOpenFor{check.executor, check.result->id})
        .then([answered](const OpenFor& of) { answered(of.open); },
              [answered](const caf::error&) { answered(true); });
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
