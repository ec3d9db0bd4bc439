#include "actors/device/outbound.hpp"

#include <algorithm>

#include "actors/device/landed.hpp"

namespace penstock {
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
  const TimePoint accepted = transfer.asked.accepted == TimePoint() ? now : transfer.asked.accepted;
  if (transfer.asked.received != TimePoint())
    transfer.stages.enter(Stage::kAdmission, transfer.asked.received);
  transfer.stages.enter(Stage::kQueue, accepted);
  if (transfer.asked.copy_target) return copy(transfer, now);
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
  if (gone) last_fences_.peer_gone(peer);
  if (gone) costs_.erase(peer);
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
  // A name may never come again.
  if (const auto found = nodes_.find(name); gone && found != nodes_.end() && found->second.idle())
    nodes_.erase(found);
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

// -- running -------------------------------------------------------------------------------------

void Outbound::grant() {
  for (const Grant& grant : scheduler_.grants()) port_.command(grant);
}

// No fence is needed for this. What failed stays out until the transfer is fenced as a whole; what
// goes over these links was never posted before, and the owner, who has the transfer open, takes it
// as it would have taken it before. Where he does not (he fenced by himself) the keys are void.
// Only the fence has to know: it names every link at the newest generation that was posted on.
void Outbound::links_back(Incarnation peer, const std::string& device,
                          const std::vector<Peer::PathCard>& links) {
  for (auto& [id, transfer] : transfers_) {
    if (transfer.peer != peer || transfer.device != device || transfer.asked.only_link) continue;
    if (transfer.state != State::kRunning && transfer.state != State::kBackingOff) continue;
    for (const auto& link : links) {
      const auto same = [&](const auto& each) { return each.link == link.link; };
      const auto known = std::find_if(transfer.links.begin(), transfer.links.end(), same);
      if (known == transfer.links.end())
        transfer.links.push_back(link);
      else
        known->generation = std::max(known->generation, link.generation);
    }
    if (transfer.state != State::kRunning) continue;  // its resume takes them all
    port_.command(AddPaths{id, paths_over(links, transfer)});
  }
}

void Outbound::quantum_done(const QuantumDone& event) {
  auto found = transfers_.find(event.transfer);
  if (found != transfers_.end()) found->second.last.completed_bytes = event.completed_bytes;
  scheduler_.quantum_done(event.transfer);
  grant();
}

/// What the poller tells of the time since the transfer was opened.
void Outbound::note_posted(Transfer& transfer, TimePoint now) {
  const TransferIdle& idle = transfer.last;
  if (idle.first_post) transfer.stages.split(Stage::kPosting, *idle.first_post, Stage::kWire);
  transfer.stages.enter(idle.complete ? Stage::kCompletion : Stage::kRecovery,
                        std::min(idle.settled.value_or(now), now));
}

void Outbound::idle(const TransferIdle& event, TimePoint now) {
  auto found = transfers_.find(event.transfer);
  if (found == transfers_.end()) return;
  Transfer& transfer = found->second;
  if (transfer.state != State::kRunning && transfer.state != State::kStopping) return;
  transfer.last = event;
  note_posted(transfer, now);
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
  const bool write = transfer.asked.direction == Direction::kWrite;
  if (!write && (*transfer.asked.local)->on_gpu() && port_.make_visible)
    port_.make_visible(**transfer.asked.local);
  // Delivery completions prove that the bytes are there. The owner's word is needed too where it
  // has more to do (notify; make what cards wrote visible to kernels), or where its count cannot be
  // full (re-posted chunks).
  const bool invisible = write && transfer.remote_on_gpu && !transfer.staged;
  const bool wait = transfer.resumed || invisible || !transfer.asked.notify.empty();
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
  if (!transfer.peer_gone) keep_telling(transfer, now);
  end(transfer, Outcome::kFailed, std::move(error),
      transfer.peer_gone ? Remote::kQuiet : Remote::kUnreachable, now);
}

// -- copies on this node -------------------------------------------------------------------------

void Outbound::copy(Transfer& transfer, TimePoint now) {
  transfer.stages.enter(Stage::kCopy, now);
  transfer.stop_copy = std::make_shared<std::atomic<bool>>(false);
  enter(transfer, State::kCopying, transfer.asked.deadline);
  const bool write = transfer.asked.direction == Direction::kWrite;
  const auto& local = transfer.asked.local;
  const auto& other = transfer.asked.copy_target;
  port_.copy({transfer.asked.id, transfer.asked.plan, write ? local : other, write ? other : local,
              transfer.stop_copy, transfer.asked.start_after, transfer.asked.record_event});
}

void Outbound::copied(TransferId id, std::uint64_t bytes, std::uint64_t chunks, TimePoint now,
                      std::optional<Error> error) {
  auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  Transfer& transfer = found->second;
  transfer.last.completed_bytes = bytes;
  transfer.last.landed = landed_prefix(chunks);
  transfer.last.complete = chunks == transfer.asked.plan->chunks();
  if (!transfer.last.complete && error && !transfer.reason)
    return end(transfer, Outcome::kFailed, std::move(error), Remote::kQuiet, now);
  if (!transfer.last.complete)
    return end(transfer, transfer.outcome, transfer.reason, Remote::kQuiet, now);
  if (!transfer.asked.notify.empty())
    port_.notify({options_.node, id, (*transfer.asked.copy_target)->name, bytes,
                  transfer.asked.notify, transfer.asked.stream, transfer.asked.part});
  end(transfer, Outcome::kDone, std::nullopt, Remote::kQuiet, now);
}

// -- the end -------------------------------------------------------------------------------------

Path Outbound::path_of(const Transfer& transfer) {
  const Admitted& asked = transfer.asked;
  if (asked.copy_target)
    return (*asked.local)->on_gpu() || (*asked.copy_target)->on_gpu() ? Path::kLocalKernel
                                                                      : Path::kLocalCopy;
  if (transfer.inlined) return Path::kInline;
  if (transfer.staged) return Path::kStaged;
  if (transfer.last.packed_bytes > 0) return Path::kPacked;
  return transfer.remote_on_gpu || (*asked.local)->on_gpu() ? Path::kGpuDirect : Path::kDirect;
}

TransferResult Outbound::result_of(const Transfer& transfer, TimePoint now) const {
  const Admitted& asked = transfer.asked;
  TransferResult result;
  result.id = asked.id;
  result.node = asked.node;
  result.region = (*asked.local)->name;
  result.remote_region = asked.remote_region;
  result.remote_epoch = transfer.epoch;
  result.direction = asked.direction == Direction::kWrite ? "write" : "read";
  result.lane = asked.lane == Lane::kBulk ? "bulk" : "urgent";
  result.path = name_of(path_of(transfer));
  result.stream = asked.stream;
  result.part = asked.part;
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
  transfer.stages.enter(Stage::kNotification, now);
  TransferResult result = result_of(transfer, now);
  result.stages = std::move(transfer.stages);
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
  const std::size_t link_count = transfer.link_count;
  const auto elapsed = transfer.last.elapsed;
  transfers_.erase(id);
  if (id < kWarmUpIds)
    port_.ended(std::move(result));
  else
    warm_up_ended(id, outcome == Outcome::kDone, link_count, elapsed, now);
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
  counters_.fences += std::holds_alternative<Fence>(question);
  counters_.opens += std::holds_alternative<Open>(question);
  transfer.token = next_token_++;
  asked_.emplace(transfer.token, transfer.asked.id);
  port_.ask(transfer.peer, transfer.token, std::move(question), deadline);
}

void Outbound::tell(const Transfer& transfer, Question question, TimePoint deadline) {
  port_.ask(transfer.peer, 0, std::move(question), deadline);
}

void Outbound::answered(std::uint64_t token, Result<Answer> answer,
                        Result<std::vector<Peer::PathCard>> links, TimePoint now) {
  const bool settled = answer || !unanswered(answer.error().code);
  if (last_fences_.answered(token, settled)) return;
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
  if (transfer.state == State::kOpening && transfer.ask_again) return open(transfer, now);
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
  last_fences_.tick(now, [this](Incarnation peer, const Fence& fence, TimePoint deadline) {
    port_.ask(peer, next_token_, fence, deadline);
    return next_token_++;
  });
}

TimePoint Outbound::next_tick() const {
  const TimePoint next = due_.empty() ? TimePoint::max() : due_.begin()->first;
  return std::min(next, last_fences_.next_tick());
}

std::vector<Outbound::Snapshot> Outbound::snapshot() const {
  std::vector<Snapshot> all;
  for (const auto& [id, transfer] : transfers_)
    if (id < kWarmUpIds)
      all.push_back({id, transfer.state, transfer.last.completed_bytes,
                     transfer.asked.plan->bytes(), transfer.asked.node,
                     (*transfer.asked.local)->name, transfer.asked.remote_region,
                     transfer.asked.direction, transfer.asked.lane, transfer.started,
                     transfer.asked.stream, transfer.asked.part});
  return all;
}

std::optional<Outbound::Unfinished> Outbound::unfinished(TransferId id, TimePoint now) const {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return std::nullopt;
  Unfinished unfinished{found->second.state, result_of(found->second, now)};
  unfinished.result.stages = found->second.stages;
  return unfinished;
}

}  // namespace penstock
