// Outbound: how a transfer is stopped, fenced, and goes on or ends.
#include <algorithm>

#include "actors/device/outbound.hpp"

namespace penstock {

void Outbound::stop(Transfer& transfer, Outcome outcome, Error reason, TimePoint now) {
  switch (transfer.state) {
    case State::kQueued:
      return end(transfer, outcome, std::move(reason), Remote::kQuiet, now);
    case State::kOpening:
      if (transfer.inlined) {
        transfer.reason = std::move(reason);
        transfer.outcome = outcome;
        return fence(transfer, now);
      }
      // No write has left; an OPEN that arrives late is ended by this fence.
      tell(transfer, Fence{transfer.asked.id, "", {}, true}, now + options_.fence);
      // A peer that stood still may find the OPEN when it goes on, and would hold the pages for the
      // whole lease.
      if (unanswered(reason.code) && !transfer.peer_gone) keep_telling(transfer, now);
      return end(transfer, outcome, std::move(reason), Remote::kQuiet, now);
    case State::kFinishing:
      return;  // every byte has landed: the answer, or its deadline, ends it
    case State::kStopping:
    case State::kFencing:
      if (transfer.reason) return;
      transfer.reason = std::move(reason);
      transfer.outcome = outcome;
      if (transfer.state == State::kFencing) fence(transfer, now);  // for good this time
      return;
    case State::kCopying:
      if (transfer.reason) return;
      transfer.reason = std::move(reason);
      transfer.outcome = outcome;
      transfer.stop_copy->store(true);
      return enter(transfer, State::kCopying, TimePoint::max());
    case State::kBackingOff:
      transfer.reason = std::move(reason);
      transfer.outcome = outcome;
      transfer.last.dirty_links.clear();  // fenced already
      return fence(transfer, now);
    case State::kRunning:
      transfer.reason = std::move(reason);
      transfer.outcome = outcome;
      enter(transfer, State::kStopping, now + grace_of(transfer, now));
      transfer.stages.enter(Stage::kRecovery, now);
      port_.command(StopTransfer{transfer.asked.id});
      scheduler_.restart(transfer.asked.id, 0);  // gives its quanta to the others
      return grant();
  }
}

Milliseconds Outbound::grace_of(const Transfer& transfer, TimePoint now) const {
  const double elapsed_ms =
      std::chrono::duration<double, std::milli>(now - transfer.started).count();
  const double done = static_cast<double>(transfer.last.completed_bytes);
  if (done <= 0) return options_.grace_max;
  const double posted = std::min(static_cast<double>(options_.window_bytes),
                                 static_cast<double>(transfer.asked.plan->bytes()) - done);
  const auto grace = Milliseconds(static_cast<long long>(4 * posted * elapsed_ms / done));
  return std::clamp(grace, options_.grace_min, options_.grace_max);
}

void Outbound::fence(Transfer& transfer, TimePoint now) {
  if (transfer.peer_gone || !transfer.peer)
    return end(transfer, transfer.outcome, transfer.reason, Remote::kQuiet, now);
  const TimePoint due = now + options_.fence, deadline = transfer.asked.deadline;
  const bool final = transfer.reason.has_value();
  // A peer that stands still for a while is not gone: until the transfer's own deadline it may come
  // back and let the transfer go on. A deadline that passes before the peer had its time to answer
  // brings the final fence.
  enter(transfer, State::kFencing, final || due <= deadline ? TimePoint::max() : deadline);
  transfer.stages.enter(Stage::kRecovery, now);
  ask(transfer, fence_of(transfer, final), final ? due : std::max(due, deadline));
}

/// Names the owner's cards on which something of the transfer failed or was cut off.
Fence Outbound::fence_of(const Transfer& transfer, bool final) const {
  Fence question{transfer.asked.id, transfer.device, {}, final};
  const auto& dirty = transfer.last.dirty_links;
  for (const auto& link : transfer.links) {
    if (std::find(dirty.begin(), dirty.end(), link.link) == dirty.end()) continue;
    const auto same = [&](const Fence::Card& card) { return card.nic == link.remote_nic; };
    const auto named = std::find_if(question.cards.begin(), question.cards.end(), same);
    if (named == question.cards.end())
      question.cards.push_back({link.remote_nic, link.generation});
    else
      named->generation = std::max(named->generation, link.generation);
  }
  return question;
}

/// The transfer ends without the owner's word: it hears the final fence until its lease ends.
void Outbound::keep_telling(const Transfer& transfer, TimePoint now) {
  const TimePoint lease_end =
      transfer.asked.deadline + options_.grace_max + options_.fence + options_.lease_extra;
  last_fences_.add(transfer.peer, fence_of(transfer, true), lease_end, now);
}

void Outbound::fenced(Transfer& transfer, Result<Answer>& answer,
                      Result<std::vector<Peer::PathCard>>& links, TimePoint now) {
  if (!answer) {
    const ErrorCode code = answer.error().code;
    const bool gone = transfer.peer_gone || code == ErrorCode::kStalePeer;
    const bool refused = !gone && !unanswered(code);
    if (!transfer.reason) {
      transfer.reason = answer.error();
      if (transfer.last.error)
        transfer.reason->message += "; before: " + transfer.last.error->message;
      transfer.outcome = Outcome::kFailed;
    }
    // The owner does not let us go on; it still tells whether its pages are quiet.
    if (refused && !transfer.asked_final) return fence(transfer, now);
    if (!refused && !gone) keep_telling(transfer, now);
    return end(transfer, transfer.outcome, transfer.reason,
               gone ? Remote::kQuiet : Remote::kUnreachable, now);
  }
  if (std::holds_alternative<AlreadyDone>(*answer)) {
    // The owner had counted to the end: all of it landed, whatever our completions said.
    transfer.last.complete = true;
    transfer.last.completed_bytes = transfer.asked.plan->bytes();
    return end(transfer, Outcome::kDone, std::nullopt, Remote::kQuiet, now);
  }
  auto* fenced = std::get_if<Fenced>(&*answer);
  if (transfer.reason && transfer.asked_final)
    return end(transfer, transfer.outcome, transfer.reason, Remote::kQuiet, now);
  transfer.last.dirty_links.clear();
  if (!transfer.reason && now >= transfer.asked.deadline) {
    transfer.reason = late(transfer);
    transfer.outcome = Outcome::kExpired;
  }
  if (transfer.reason) return fence(transfer, now);  // stopped meanwhile: tell the owner it ends
  if (!fenced || !links || links->empty()) {
    transfer.reason = links ? transfer.last.error.value_or(
                                  Error{ErrorCode::kUnsupported, "no card here reaches the owner"})
                            : links.error();
    return fence(transfer, now);
  }
  if (transfer.staged && !fenced->staging) {
    transfer.reason = Error{
        ErrorCode::kResourceExhausted,
        fmt::format("node '{}' lent no staging slots again after a fence", transfer.asked.node)};
    transfer.outcome = Outcome::kFailed;
    return fence(transfer, now);
  }
  transfer.links = std::move(*links);
  if (!fenced->keys.empty()) transfer.keys = std::move(fenced->keys);
  if (transfer.staged) {
    transfer.staging_keys = std::move(fenced->staging->keys);
    transfer.slots.emplace(
        Packing{0, fenced->staging->slot_bytes, std::move(fenced->staging->slots), true});
  }
  if (transfer.failures <= 1) return resume(transfer, now);
  const auto backoff = options_.retry_backoff * (1u << std::min(transfer.failures, 6u));
  enter(transfer, State::kBackingOff, std::min(transfer.asked.deadline, now + backoff));
}

void Outbound::resume(Transfer& transfer, TimePoint now) {
  transfer.resumed = true;
  ++counters_.retries;
  // What it posted before counts for it: from here on it is on its way again.
  transfer.stages.enter(Stage::kWire, now);
  transfer.last.error.reset();
  enter(transfer, State::kRunning, transfer.asked.deadline);
  port_.command(ResumeTransfer{transfer.asked.id, paths_over(transfer.links, transfer),
                               std::exchange(transfer.slots, std::nullopt)});
  scheduler_.restart(transfer.asked.id,
                     transfer.asked.plan->bytes() - transfer.last.completed_bytes);
  grant();
}

}  // namespace penstock
