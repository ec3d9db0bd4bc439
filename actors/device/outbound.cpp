#include "actors/device/outbound.hpp"

#include <algorithm>

#include "actors/device/landed.hpp"

namespace penstock {
namespace {

using Outcome = TransferResult::State;
using Remote = TransferResult::Remote;

std::uint32_t milliseconds_between(TimePoint from, TimePoint to) {
  const auto ms = std::chrono::duration_cast<Milliseconds>(to - from).count();
  return static_cast<std::uint32_t>(std::clamp<long long>(ms, 0, 0xffffffffLL));
}

}  // namespace

std::string_view name_of(Outbound::State state) {
  switch (state) {
    case Outbound::State::kQueued:
      return "queued";
    case Outbound::State::kOpening:
      return "opening";
    case Outbound::State::kRunning:
      return "running";
    case Outbound::State::kFinishing:
      return "finishing";
    case Outbound::State::kStopping:
      return "stopping";
    case Outbound::State::kFencing:
      return "fencing";
    case Outbound::State::kBackingOff:
      return "backing off";
    case Outbound::State::kCopying:
      return "copying";
  }
  return "unknown";
}

Outbound::Outbound(Options options, Port port)
    : options_(std::move(options)), port_(std::move(port)), scheduler_(options_.scheduler) {}

// -- what is asked of us -------------------------------------------------------------------------

void Outbound::admit(Admitted admitted, TimePoint now) {
  const TransferId id = admitted.id;
  Transfer& transfer = transfers_[id];
  transfer.asked = std::move(admitted);
  transfer.started = now;
  transfer.last.transfer = id;
  if (transfer.asked.copy_target) return copy(transfer);
  if (transfer.asked.plan->chunks() == 0 && transfer.asked.notify.empty())
    return end(transfer, Outcome::kDone, std::nullopt, Remote::kQuiet, now);
  enter(transfer, State::kQueued, std::min(transfer.asked.deadline, now + options_.connect));
  queue_of(transfer).waiting.insert(id);
  open_waiting(nodes_[transfer.asked.node], now);
}

void Outbound::cancel(TransferId id, TimePoint now) {
  auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  stop(found->second, Outcome::kCancelled, {ErrorCode::kCancelled, "cancelled on request"}, now);
}

void Outbound::cancel_region(const std::string& region, TimePoint now) {
  std::vector<TransferId> users;
  for (auto& [id, transfer] : transfers_) {
    const Admitted& asked = transfer.asked;
    if ((*asked.local)->name == region ||
        (asked.copy_target && (*asked.copy_target)->name == region))
      users.push_back(id);
  }
  for (TransferId id : users)
    stop(transfers_.at(id), Outcome::kCancelled,
         {ErrorCode::kCancelled, "region '" + region + "' was released with force"}, now);
}

void Outbound::peer_up(const std::string& name, Incarnation peer, TimePoint now) {
  Node& node = nodes_[name];
  node.up = peer;
  open_waiting(node, now);
}

void Outbound::peer_down(const std::string& name, Incarnation peer, const Error& error, bool gone,
                         TimePoint now) {
  Node& node = nodes_[name];
  if (node.up == peer) node.up.reset();
  std::vector<TransferId> affected;
  for (auto& [id, transfer] : transfers_) {
    if (transfer.peer == peer) affected.push_back(id);
    if (transfer.state == State::kQueued && transfer.asked.node == name && !node.up)
      enter(transfer, State::kQueued, std::min(transfer.asked.deadline, now + options_.connect));
  }
  for (TransferId id : affected) {
    Transfer& transfer = transfers_.at(id);
    transfer.peer_gone = gone;
    stop(transfer, Outcome::kFailed, error, now);
    // A question that crosses the peer's end on its way to it is answered by nobody else.
    auto left = transfers_.find(id);
    if (left == transfers_.end() || left->second.token == 0) continue;
    answered(left->second.token, tl::unexpected(error), tl::unexpected(error), now);
  }
}

void Outbound::revoked(Incarnation peer, const std::string& region, std::uint64_t epoch,
                       TimePoint now) {
  std::vector<TransferId> affected;
  for (auto& [id, transfer] : transfers_) {
    const std::uint64_t known = transfer.epoch ? transfer.epoch : transfer.asked.remote_epoch;
    if (transfer.peer == peer && transfer.asked.remote_region == region &&
        (known == 0 || known == epoch))
      affected.push_back(id);
  }
  for (TransferId id : affected)
    stop(transfers_.at(id), Outcome::kFailed,
         {ErrorCode::kStaleRegion,
          fmt::format("the owner released region '{}' (epoch {})", region, epoch)},
         now);
}

// -- opening -------------------------------------------------------------------------------------

Outbound::Node::Queue& Outbound::queue_of(const Transfer& transfer) {
  return nodes_[transfer.asked.node].lanes[transfer.asked.lane == Lane::kBulk];
}

void Outbound::open_waiting(Node& node, TimePoint now) {
  for (auto& queue : node.lanes) {
    while (node.up && queue.open < options_.open_per_node && !queue.waiting.empty()) {
      Transfer& transfer = transfers_.at(*queue.waiting.begin());
      queue.waiting.erase(queue.waiting.begin());
      transfer.peer = *node.up;
      ++queue.open;
      open(transfer, now);
    }
  }
}

void Outbound::open(Transfer& transfer, TimePoint now) {
  const Admitted& asked = transfer.asked;
  const Plan& plan = *asked.plan;
  const bool write = asked.direction == Direction::kWrite;
  const bool counted = write && plan.chunks() > 0 && plan.chunks() <= options_.counted_chunks;
  Open question;
  question.transfer = asked.id;
  question.region = asked.remote_region;
  question.epoch = asked.remote_epoch;
  question.direction = asked.direction;
  question.end = write ? plan.destination_end() : plan.source_end();
  question.bytes = plan.bytes();
  question.chunks = counted ? static_cast<std::uint32_t>(plan.chunks()) : 0;
  question.lease_ms = milliseconds_between(
      now, asked.deadline + options_.grace_max + options_.fence + options_.lease_extra);
  question.initiator_region = (*asked.local)->name;
  question.notify = asked.notify;
  const TimePoint due = std::min(asked.deadline, now + options_.open);
  enter(transfer, State::kOpening, asked.deadline);
  ask(transfer, std::move(question), due);
}

void Outbound::opened(Transfer& transfer, Result<Answer>& answer,
                      Result<std::vector<Peer::PathCard>>& links, TimePoint now) {
  if (!answer) {
    tell(transfer, Fence{transfer.asked.id, "", {}, true}, now + options_.fence);
    const bool late =
        answer.error().code == ErrorCode::kPeerUnreachable && now >= transfer.asked.deadline;
    return end(transfer, late ? Outcome::kExpired : Outcome::kFailed, answer.error(),
               Remote::kQuiet, now);
  }
  auto* ok = std::get_if<OpenOk>(&*answer);
  if (!ok || !links || links->empty()) {
    if (ok) transfer.device = ok->device;
    tell(transfer, Fence{transfer.asked.id, transfer.device, {}, true}, now + options_.fence);
    Error error = !ok      ? Error{ErrorCode::kInternal, "the owner gave an answer of another kind"}
                  : !links ? links.error()
                           : Error{ErrorCode::kUnsupported, "no card here reaches the owner"};
    return end(transfer, Outcome::kFailed, std::move(error), Remote::kQuiet, now);
  }
  transfer.device = ok->device;
  transfer.epoch = ok->epoch;
  transfer.keys = std::move(ok->keys);
  transfer.immediate = ok->immediate;
  transfer.links = std::move(*links);
  if (transfer.asked.plan->chunks() == 0) {
    transfer.last.complete = true;
    return finish(transfer, now);
  }
  transfer.started_poller = true;
  enter(transfer, State::kRunning, transfer.asked.deadline);
  port_.command(StartTransfer{transfer.asked.id, transfer.asked.plan, transfer.asked.direction,
                              transfer.asked.lane, (*transfer.asked.local)->local(),
                              paths_of(transfer), transfer.immediate});
  scheduler_.add(transfer.asked.id, transfer.peer, transfer.asked.lane, transfer.asked.weight,
                 transfer.asked.plan->bytes());
  grant();
}

std::vector<RemotePath> Outbound::paths_of(const Transfer& transfer) const {
  std::vector<RemotePath> paths;
  for (const auto& link : transfer.links)
    for (const auto& key : transfer.keys)
      if (key.nic == link.remote_nic)
        paths.push_back({link.link, key.base, key.key, link.generation});
  return paths;
}

// -- running -------------------------------------------------------------------------------------

void Outbound::grant() {
  for (const Grant& grant : scheduler_.grants()) port_.command(grant);
}

void Outbound::quantum_done(const QuantumDone& event) {
  auto found = transfers_.find(event.transfer);
  if (found != transfers_.end()) found->second.last.completed_bytes = event.completed_bytes;
  scheduler_.quantum_done(event.transfer);
  grant();
}

void Outbound::idle(const TransferIdle& event, TimePoint now) {
  auto found = transfers_.find(event.transfer);
  if (found == transfers_.end()) return;
  Transfer& transfer = found->second;
  if (transfer.state != State::kRunning && transfer.state != State::kStopping) return;
  transfer.last = event;
  if (event.complete) return finish(transfer, now);
  scheduler_.restart(event.transfer, 0);  // gives its quanta to the others
  grant();
  if (!transfer.reason) {
    if (event.completed_bytes > transfer.bytes_at_failure) transfer.failures = 0;
    transfer.bytes_at_failure = event.completed_bytes;
    ++transfer.failures;
    if (transfer.failures > options_.retries) {
      transfer.reason = event.error.value_or(Error{ErrorCode::kProvider, "the card failed"});
      transfer.reason->message += fmt::format(" ({} times without progress)", transfer.failures);
      transfer.outcome = Outcome::kFailed;
    }
  }
  fence(transfer, now);
}

void Outbound::finish(Transfer& transfer, TimePoint now) {
  scheduler_.remove(transfer.asked.id);
  grant();
  const TimePoint due = now + options_.fence;
  // Delivery completions prove that the bytes are there. The owner's word is needed too where it
  // has more to do (notify), or where its count cannot be full (re-posted chunks).
  const bool wait = transfer.resumed || !transfer.asked.notify.empty();
  Fin fin{transfer.asked.id, transfer.device};
  if (!wait) {
    tell(transfer, std::move(fin), due);
    return end(transfer, Outcome::kDone, std::nullopt, Remote::kQuiet, now);
  }
  enter(transfer, State::kFinishing, TimePoint::max());
  ask(transfer, std::move(fin), due);
}

void Outbound::finished(Transfer& transfer, const Result<Answer>& answer, TimePoint now) {
  if (answer) return end(transfer, Outcome::kDone, std::nullopt, Remote::kQuiet, now);
  Error error = answer.error();
  error.message = "every byte was delivered, but the owner did not confirm: " + error.message;
  end(transfer, Outcome::kFailed, std::move(error),
      transfer.peer_gone ? Remote::kQuiet : Remote::kUnreachable, now);
}

// -- stopping and fencing ------------------------------------------------------------------------

void Outbound::stop(Transfer& transfer, Outcome outcome, Error reason, TimePoint now) {
  switch (transfer.state) {
    case State::kQueued:
      return end(transfer, outcome, std::move(reason), Remote::kQuiet, now);
    case State::kOpening:
      // No write has left; an OPEN that arrives late is ended by this fence.
      tell(transfer, Fence{transfer.asked.id, "", {}, true}, now + options_.fence);
      return end(transfer, outcome, std::move(reason), Remote::kQuiet, now);
    case State::kFinishing:
      return;  // every byte has landed: the answer, or its deadline, ends it
    case State::kStopping:
    case State::kFencing:
      if (!transfer.reason) {
        transfer.reason = std::move(reason);
        transfer.outcome = outcome;
      }
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
      transfer.last.dirty_nics.clear();  // fenced already
      return fence(transfer, now);
    case State::kRunning:
      transfer.reason = std::move(reason);
      transfer.outcome = outcome;
      enter(transfer, State::kStopping, now + grace_of(transfer, now));
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
  Fence question{transfer.asked.id, transfer.device, {}, transfer.reason.has_value()};
  for (const auto& link : transfer.links) {
    const auto& dirty = transfer.last.dirty_nics;
    if (std::find(dirty.begin(), dirty.end(), link.local_nic) == dirty.end()) continue;
    const auto same = [&](const Fence::Card& card) { return card.nic == link.remote_nic; };
    if (std::none_of(question.cards.begin(), question.cards.end(), same))
      question.cards.push_back({link.remote_nic, link.generation});
  }
  enter(transfer, State::kFencing, TimePoint::max());
  ask(transfer, std::move(question), now + options_.fence);
}

void Outbound::fenced(Transfer& transfer, Result<Answer>& answer,
                      Result<std::vector<Peer::PathCard>>& links, TimePoint now) {
  if (!answer) {
    const ErrorCode code = answer.error().code;
    const bool gone = transfer.peer_gone || code == ErrorCode::kStalePeer;
    const bool refused =
        !gone && code != ErrorCode::kPeerUnreachable && code != ErrorCode::kPeerLeft;
    if (!transfer.reason) {
      transfer.reason = answer.error();
      if (transfer.last.error)
        transfer.reason->message += "; before: " + transfer.last.error->message;
      transfer.outcome = Outcome::kFailed;
    }
    // The owner does not let us go on; it still tells whether its pages are quiet.
    if (refused && !transfer.asked_final) return fence(transfer, now);
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
  transfer.last.dirty_nics.clear();
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
  transfer.links = std::move(*links);
  if (!fenced->keys.empty()) transfer.keys = std::move(fenced->keys);
  if (transfer.failures <= 1) return resume(transfer, now);
  const auto backoff = options_.retry_backoff * (1u << std::min(transfer.failures, 6u));
  enter(transfer, State::kBackingOff, std::min(transfer.asked.deadline, now + backoff));
}

void Outbound::resume(Transfer& transfer, TimePoint now) {
  transfer.resumed = true;
  transfer.last.error.reset();
  enter(transfer, State::kRunning, transfer.asked.deadline);
  port_.command(ResumeTransfer{transfer.asked.id, paths_of(transfer)});
  scheduler_.restart(transfer.asked.id,
                     transfer.asked.plan->bytes() - transfer.last.completed_bytes);
  grant();
  (void)now;
}

// -- copies on this node -------------------------------------------------------------------------

void Outbound::copy(Transfer& transfer) {
  transfer.stop_copy = std::make_shared<std::atomic<bool>>(false);
  enter(transfer, State::kCopying, transfer.asked.deadline);
  const bool write = transfer.asked.direction == Direction::kWrite;
  const auto& local = transfer.asked.local;
  const auto& other = transfer.asked.copy_target;
  port_.copy({transfer.asked.id, transfer.asked.plan, write ? local : other, write ? other : local,
              transfer.stop_copy});
}

void Outbound::copied(TransferId id, std::uint64_t bytes, std::uint64_t chunks, TimePoint now) {
  auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  Transfer& transfer = found->second;
  transfer.last.completed_bytes = bytes;
  transfer.last.landed = landed_prefix(chunks);
  transfer.last.complete = chunks == transfer.asked.plan->chunks();
  if (!transfer.last.complete)
    return end(transfer, transfer.outcome, transfer.reason, Remote::kQuiet, now);
  if (!transfer.asked.notify.empty())
    port_.notify(
        {options_.node, id, (*transfer.asked.copy_target)->name, bytes, transfer.asked.notify});
  end(transfer, Outcome::kDone, std::nullopt, Remote::kQuiet, now);
}

// -- the end -------------------------------------------------------------------------------------

TransferResult Outbound::result_of(const Transfer& transfer, TimePoint now) const {
  const Admitted& asked = transfer.asked;
  TransferResult result;
  result.id = asked.id;
  result.node = asked.node;
  result.region = (*asked.local)->name;
  result.remote_region = asked.remote_region;
  result.direction = asked.direction == Direction::kWrite ? "write" : "read";
  result.lane = asked.lane == Lane::kBulk ? "bulk" : "urgent";
  result.path = asked.copy_target ? "copy" : "fabric";
  result.bytes = transfer.last.completed_bytes;
  result.elapsed_us = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(now - transfer.started).count());
  for (std::size_t i = 0; i < transfer.last.shares.size(); ++i) {
    result.writes += transfer.last.shares[i].writes;
    result.cards.emplace_back(i < options_.cards.size() ? options_.cards[i] : std::to_string(i),
                              transfer.last.shares[i]);
  }
  return result;
}

void Outbound::end(Transfer& transfer, Outcome outcome, std::optional<Error> error, Remote remote,
                   TimePoint now) {
  const TransferId id = transfer.asked.id;
  TransferResult result = result_of(transfer, now);
  result.state = outcome;
  result.remote = remote;
  if (outcome != Outcome::kDone) {
    result.error = error.value_or(Error{ErrorCode::kInternal, "ended without a reason"});
    Landed landed =
        landed_ranges(*transfer.asked.plan, transfer.last.landed, options_.landed_ranges);
    result.landed = std::move(landed.ranges);
    result.landed_truncated = landed.truncated;
  }
  if (transfer.started_poller) port_.command(EndTransfer{id});
  scheduler_.remove(id);
  due_.erase({transfer.due, id});
  if (transfer.token) asked_.erase(transfer.token);
  const std::string node = transfer.asked.node;
  if (transfer.peer)
    --queue_of(transfer).open;
  else if (!transfer.asked.copy_target)
    queue_of(transfer).waiting.erase(id);
  transfers_.erase(id);
  port_.ended(std::move(result));
  if (auto found = nodes_.find(node); found != nodes_.end()) open_waiting(found->second, now);
  grant();
}

// -- time and answers ----------------------------------------------------------------------------

void Outbound::enter(Transfer& transfer, State state, TimePoint due) {
  due_.erase({transfer.due, transfer.asked.id});
  transfer.state = state;
  transfer.due = due;
  if (due != TimePoint::max()) due_.emplace(due, transfer.asked.id);
}

void Outbound::ask(Transfer& transfer, Question question, TimePoint deadline) {
  if (transfer.token) asked_.erase(transfer.token);
  if (auto* fence = std::get_if<Fence>(&question)) transfer.asked_final = fence->final;
  transfer.token = next_token_++;
  asked_.emplace(transfer.token, transfer.asked.id);
  port_.ask(transfer.peer, transfer.token, std::move(question), deadline);
}

void Outbound::tell(const Transfer& transfer, Question question, TimePoint deadline) {
  port_.ask(transfer.peer, 0, std::move(question), deadline);
}

void Outbound::answered(std::uint64_t token, Result<Answer> answer,
                        Result<std::vector<Peer::PathCard>> links, TimePoint now) {
  auto asked = asked_.find(token);
  if (asked == asked_.end()) return;
  Transfer& transfer = transfers_.at(asked->second);
  asked_.erase(asked);
  transfer.token = 0;
  if (answer)
    if (auto* refused = std::get_if<Refused>(&*answer)) answer = tl::unexpected(refused->error);
  if (transfer.state == State::kOpening) return opened(transfer, answer, links, now);
  if (transfer.state == State::kFinishing) return finished(transfer, answer, now);
  if (transfer.state == State::kFencing) return fenced(transfer, answer, links, now);
}

Error Outbound::late(const Transfer& transfer) {
  return {ErrorCode::kDeadlineExceeded,
          fmt::format("the transfer's deadline passed while it was {}", name_of(transfer.state))};
}

void Outbound::overdue(Transfer& transfer, TimePoint now) {
  if (transfer.state == State::kStopping && !transfer.forced) {
    // Some operations never completed: take the endpoint away from under them.
    transfer.forced = true;
    enter(transfer, State::kStopping, TimePoint::max());
    std::set<std::uint16_t> nics;
    for (const auto& link : transfer.links) nics.insert(link.local_nic);
    for (std::uint16_t nic : nics) port_.command(ReopenOutbound{nic});
    return;
  }
  if (now >= transfer.asked.deadline) return stop(transfer, Outcome::kExpired, late(transfer), now);
  if (transfer.state == State::kQueued && nodes_[transfer.asked.node].up)
    return enter(transfer, State::kQueued, transfer.asked.deadline);  // others are before it
  if (transfer.state == State::kQueued)
    return end(transfer, Outcome::kFailed,
               Error{ErrorCode::kPeerUnreachable,
                     fmt::format("node '{}' was not connected within {} ms", transfer.asked.node,
                                 options_.connect.count())},
               Remote::kQuiet, now);
  if (transfer.state == State::kBackingOff) resume(transfer, now);
}

void Outbound::tick(TimePoint now) {
  while (!due_.empty() && due_.begin()->first <= now) {
    const TransferId id = due_.begin()->second;
    Transfer& transfer = transfers_.at(id);
    due_.erase(due_.begin());
    transfer.due = TimePoint::max();
    overdue(transfer, now);
  }
}

TimePoint Outbound::next_tick() const {
  return due_.empty() ? TimePoint::max() : due_.begin()->first;
}

std::vector<Outbound::Snapshot> Outbound::snapshot() const {
  std::vector<Snapshot> all;
  for (const auto& [id, transfer] : transfers_)
    all.push_back(
        {id, transfer.state, transfer.last.completed_bytes, transfer.asked.plan->bytes()});
  return all;
}

}  // namespace penstock
