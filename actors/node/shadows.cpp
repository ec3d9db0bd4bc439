#include "actors/node/shadows.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace penstock {
namespace {

constexpr std::size_t kPartBytes = kMaxInlineBytes;
constexpr std::size_t kLookedAt = 256;  // in one question
constexpr Milliseconds kLookDeadline{5000};

Outbound::State state_named(const std::string& seen) {
  for (const auto state :
       {Outbound::State::kOpening, Outbound::State::kRunning, Outbound::State::kFinishing,
        Outbound::State::kStopping, Outbound::State::kFencing, Outbound::State::kBackingOff,
        Outbound::State::kCopying})
    if (name_of(state) == seen) return state;
  return Outbound::State::kQueued;
}

/// What the deadline's passing is called.
Error late_error(const std::string& on) {
  return {ErrorCode::kDeadlineExceeded,
          fmt::format("its deadline passed while node '{}' carried it out", on)};
}

std::uint32_t milliseconds_left(TimePoint deadline, TimePoint now) {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - now).count();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(left, 1, UINT32_MAX));
}

}  // namespace

Result<void> Shadows::has_room(std::uint64_t bytes) const {
  if (waiting_bytes_ + bytes <= options_.waiting_bytes) return {};
  return fail(ErrorCode::kResourceExhausted,
              "requests of {} bytes for other nodes wait here, {} more were asked for, at most {}: "
              "ask again",
              waiting_bytes_, bytes, options_.waiting_bytes);
}

void Shadows::start(Asked asked, TimePoint now) {
  const TransferId id = asked.id;
  const std::string on = asked.on;
  live_->add(id);
  Shadow& shadow = shadows_[id];
  shadow.stages.enter(Stage::kAdmission, asked.received);
  shadow.stages.enter(Stage::kDelegation, asked.accepted);
  shadow.asked = std::move(asked);
  waiting_bytes_ += shadow.asked.request->size();
  set_due(shadow, shadow.asked.deadline + options_.late);
  executors_[on].waiting.push_back(id);
  hand_over(on, now);
}

void Shadows::ask(Pending about, Question question, TimePoint deadline) {
  const std::uint64_t token = next_token_++;
  const std::string node = about.node;
  asked_.emplace(token, std::move(about));
  port_.ask(node, token, std::move(question), deadline);
}

// -- handing over --------------------------------------------------------------------------------

void Shadows::hand_over(const std::string& node, TimePoint now) {
  Executor& executor = executors_[node];
  while (executor.unanswered < options_.unanswered && !executor.waiting.empty()) {
    const auto entry = shadows_.find(executor.waiting.front());
    executor.waiting.pop_front();
    if (entry == shadows_.end()) continue;  // it has ended
    entry->second.state = State::kSending;
    ++executor.unanswered;
    send_part(entry->second, now);
  }
}

void Shadows::send_part(Shadow& shadow, TimePoint now) {
  const std::vector<std::byte>& request = *shadow.asked.request;
  Delegate part;
  part.transfer = shadow.asked.id;
  part.client = shadow.asked.client;
  part.admin = shadow.asked.admin;
  part.deadline_ms = milliseconds_left(shadow.asked.deadline, now);
  part.total = static_cast<std::uint32_t>(request.size());
  part.offset = shadow.sent;
  const auto bytes =
      std::span(request).subspan(shadow.sent, std::min(request.size() - shadow.sent, kPartBytes));
  part.part.bytes.assign(bytes.begin(), bytes.end());
  shadow.part = static_cast<std::uint32_t>(bytes.size());
  ask({Kind::kDelegate, shadow.asked.on, shadow.asked.id}, std::move(part),
      shadow.asked.deadline + options_.late + options_.stopping + options_.margin);
}

void Shadows::delegated(Entry entry, const Result<Answer>& answer, TimePoint now) {
  Shadow& shadow = entry->second;
  const bool stopping = shadow.state == State::kStopping;
  if (answer && std::get<Delegated>(*answer).executed_as == 0) {
    shadow.sent += shadow.part;
    if (shadow.sent < shadow.asked.request->size() && !stopping) {
      ++executors_[shadow.asked.on].unanswered;  // still
      return send_part(shadow, now);
    }
    if (stopping) return;  // its word to the stop decides
    return end(entry, Outcome::kFailed,
               {ErrorCode::kInternal,
                fmt::format("node '{}' has the whole request and asks for more", shadow.asked.on)},
               Remote::kUnreachable, now);
  }
  if (answer) {
    shadow.on_as = std::get<Delegated>(*answer).executed_as;
    if (!stopping) shadow.state = State::kRunning;
    drop_request(shadow);
    Executor& executor = executors_[shadow.asked.on];
    if (executor.look == TimePoint::max()) executor.look = now + options_.look_every;
    return;
  }
  // Nobody knows whether it heard us: the deadlines decide, or membership does.
  if (unanswered(answer.error().code)) return;
  if (stopping) return end(entry, shadow.outcome, shadow.reason, Remote::kQuiet, now);
  const Error& refused = answer.error();
  if (refused.code == ErrorCode::kDenied && port_.refused)
    port_.refused(shadow.asked.client, refused.message);
  end(entry, Outcome::kFailed, refused, Remote::kQuiet, now);
}

void Shadows::drop_request(Shadow& shadow) {
  if (!shadow.asked.request) return;
  waiting_bytes_ -= shadow.asked.request->size();
  shadow.asked.request = nullptr;
}

// -- what the executor says ----------------------------------------------------------------------

void Shadows::answered(std::uint64_t token, const Result<Answer>& answer, TimePoint now) {
  const auto found = asked_.find(token);
  if (found == asked_.end()) return;
  const Pending question = std::move(found->second);
  asked_.erase(found);
  if (question.kind == Kind::kLook) return seen(question, answer, now);
  const auto entry = shadows_.find(question.transfer);
  if (question.kind == Kind::kDelegate) {
    const auto executor = executors_.find(question.node);
    if (executor != executors_.end() && executor->second.unanswered > 0)
      --executor->second.unanswered;
    if (entry != shadows_.end()) delegated(entry, answer, now);
    if (executors_.contains(question.node)) hand_over(question.node, now);
  } else if (entry != shadows_.end()) {
    stop_seen(entry, answer, now);
  }
}

void Shadows::over(const std::string& node, const DelegatedEnded& end, TimePoint now) {
  const auto entry = shadows_.find(end.transfer);
  if (entry == shadows_.end() || entry->second.asked.on != node) return;
  const Shadow& shadow = entry->second;
  TransferResult result = result_of(shadow);
  result.state = end.state <= static_cast<std::uint8_t>(Outcome::kExpired)
                     ? static_cast<Outcome>(end.state)
                     : Outcome::kFailed;
  result.remote = end.unreachable ? Remote::kUnreachable : Remote::kQuiet;
  result.remote_epoch = end.remote_epoch;
  result.bytes = end.bytes;
  result.writes = end.writes;
  result.path = end.path;
  for (const auto& card : end.cards)
    result.cards.push_back({card.name, {card.bytes, card.writes, {}}});
  result.error = end.error;
  result.landed.resize(end.landed.bytes.size() / sizeof(std::uint64_t) / 3 * 3);
  if (!result.landed.empty())
    std::memcpy(result.landed.data(), end.landed.bytes.data(),
                result.landed.size() * sizeof(std::uint64_t));
  result.landed_truncated = end.landed_truncated;
  result.on_as = end.executed_as;
  // It was stopped since its deadline had passed here, a moment before it passed there.
  if (result.state == Outcome::kCancelled && shadow.state == State::kStopping &&
      shadow.outcome == Outcome::kExpired) {
    result.state = Outcome::kExpired;
    result.error = shadow.reason;
  }
  this->end(entry, std::move(result), now);
}

void Shadows::executor_lost(const std::string& node, const Error& error, TimePoint now) {
  executors_.erase(node);
  std::erase_if(asked_, [&](const auto& each) { return each.second.node == node; });
  std::vector<TransferId> lost;
  for (const auto& [id, shadow] : shadows_)
    if (shadow.asked.on == node) lost.push_back(id);
  for (const TransferId id : lost) {
    const auto entry = shadows_.find(id);
    const bool never_sent = entry->second.state == State::kWaiting;
    end(entry, Outcome::kFailed,
        {ErrorCode::kExecutorDied,
         fmt::format("the executor of the transfer is gone: {}", error.message)},
        never_sent ? Remote::kQuiet : Remote::kUnreachable, now);
  }
}

// -- stopping ------------------------------------------------------------------------------------

bool Shadows::cancel(TransferId transfer, TimePoint now) {
  const auto entry = shadows_.find(transfer);
  if (entry == shadows_.end()) return false;
  Shadow& shadow = entry->second;
  Error cancelled{ErrorCode::kCancelled, "cancelled"};
  if (shadow.state == State::kWaiting)
    end(entry, Outcome::kCancelled, std::move(cancelled), Remote::kQuiet, now);
  else if (shadow.state != State::kStopping)
    stop(shadow, Outcome::kCancelled, std::move(cancelled), now);
  return true;
}

void Shadows::stop(Shadow& shadow, Outcome outcome, Error reason, TimePoint now) {
  shadow.state = State::kStopping;
  shadow.outcome = outcome;
  shadow.reason = std::move(reason);
  shadow.stages.enter(Stage::kRecovery, now);
  set_due(shadow, now + options_.stopping + options_.margin);
  ask({Kind::kStop, shadow.asked.on, shadow.asked.id}, StopDelegated{shadow.asked.id}, shadow.due);
}

void Shadows::stop_seen(Entry entry, const Result<Answer>& answer, TimePoint now) {
  // Without an answer the time decides; when it runs, its end is told.
  if (!answer || std::get<StopSeen>(*answer).running) return;
  const Shadow& shadow = entry->second;
  end(entry, shadow.outcome, shadow.reason, Remote::kQuiet, now);
}

void Shadows::overdue(Entry entry, TimePoint now) {
  Shadow& shadow = entry->second;
  const Error late = late_error(shadow.asked.on);
  if (shadow.state == State::kWaiting)
    return end(entry, Outcome::kExpired, late, Remote::kQuiet, now);
  if (shadow.state != State::kStopping) return stop(shadow, Outcome::kExpired, late, now);
  Error silent = shadow.reason;
  silent.message += fmt::format("; node '{}' says nothing more about it", shadow.asked.on);
  end(entry, shadow.outcome, std::move(silent), Remote::kUnreachable, now);
}

// -- looking -------------------------------------------------------------------------------------

void Shadows::look(const std::string& node, Executor& executor, TimePoint now) {
  executor.look = TimePoint::max();
  std::vector<TransferId> ids;
  const auto add_from = [&](std::map<TransferId, Shadow>::const_iterator from,
                            std::map<TransferId, Shadow>::const_iterator to) {
    for (; from != to && ids.size() < kLookedAt; ++from)
      if (from->second.asked.on == node && from->second.on_as != 0) ids.push_back(from->first);
  };
  // Those behind the last ones first, so that each has its turn.
  const auto middle = shadows_.upper_bound(executor.looked);
  add_from(middle, shadows_.end());
  add_from(shadows_.begin(), middle);
  if (ids.empty()) return;
  executor.looked = ids.back();
  executor.looking = true;
  LookAtDelegated question{ids};
  ask({Kind::kLook, node, 0, std::move(ids)}, std::move(question), now + kLookDeadline);
}

void Shadows::seen(const Pending& question, const Result<Answer>& answer, TimePoint now) {
  const auto executor = executors_.find(question.node);
  if (executor == executors_.end()) return;
  executor->second.looking = false;
  executor->second.look = now + options_.look_every;
  if (!answer) return;
  const auto& places = std::get<DelegatedSeen>(*answer).transfers;
  for (std::size_t i = 0; i < std::min(places.size(), question.looked_at.size()); ++i) {
    const auto entry = shadows_.find(question.looked_at[i]);
    if (entry == shadows_.end()) continue;
    Shadow& shadow = entry->second;
    if (places[i].state == "unknown") {
      end(entry, Outcome::kFailed,
          {ErrorCode::kInternal,
           fmt::format("node '{}' does not know the transfer any more", question.node)},
          Remote::kUnreachable, now);
      continue;
    }
    shadow.seen = places[i].state;
    shadow.bytes = places[i].bytes;
    shadow.total_bytes = places[i].total_bytes;
  }
}

// -- time ----------------------------------------------------------------------------------------

void Shadows::set_due(Shadow& shadow, TimePoint due) {
  due_.erase({shadow.due, shadow.asked.id});
  shadow.due = due;
  due_.emplace(due, shadow.asked.id);
}

void Shadows::tick(TimePoint now) {
  while (!due_.empty() && due_.begin()->first <= now)
    overdue(shadows_.find(due_.begin()->second), now);
  for (auto& [node, executor] : executors_)
    if (!executor.looking && executor.look <= now) look(node, executor, now);
}

TimePoint Shadows::next_tick() const {
  TimePoint next = due_.empty() ? TimePoint::max() : due_.begin()->first;
  for (const auto& [node, executor] : executors_)
    if (!executor.looking) next = std::min(next, executor.look);
  return next;
}

// -- the end -------------------------------------------------------------------------------------

TransferResult Shadows::result_of(const Shadow& shadow) {
  TransferResult result;
  result.id = shadow.asked.id;
  result.node = shadow.asked.node;
  result.region = shadow.asked.region;
  result.remote_region = shadow.asked.remote_region;
  result.direction = shadow.asked.direction == Direction::kWrite ? "write" : "read";
  result.lane = shadow.asked.lane == Lane::kBulk ? "bulk" : "urgent";
  result.on = shadow.asked.on;
  result.on_as = shadow.on_as;
  result.bytes = shadow.bytes;
  result.stages = shadow.stages;
  return result;
}

void Shadows::end(Entry entry, Outcome outcome, Error error, Remote remote, TimePoint now) {
  TransferResult result = result_of(entry->second);
  result.state = outcome;
  result.error = std::move(error);
  result.remote = remote;
  end(entry, std::move(result), now);
}

void Shadows::end(Entry entry, TransferResult result, TimePoint now) {
  Shadow& shadow = entry->second;
  result.elapsed_us = static_cast<std::uint64_t>(std::max<std::int64_t>(
      0,
      std::chrono::duration_cast<std::chrono::microseconds>(now - shadow.asked.accepted).count()));
  due_.erase({shadow.due, shadow.asked.id});
  drop_request(shadow);
  live_->remove(entry->first);
  shadows_.erase(entry);
  port_.ended(std::move(result));
}

Outbound::State Shadows::state_of(const Shadow& shadow) {
  return shadow.state == State::kStopping ? Outbound::State::kStopping : state_named(shadow.seen);
}

std::vector<Shadows::Elsewhere> Shadows::snapshot() const {
  std::vector<Elsewhere> all;
  all.reserve(shadows_.size());
  for (const auto& [id, shadow] : shadows_) {
    const Asked& asked = shadow.asked;
    Elsewhere& one = all.emplace_back();
    one.snapshot.id = id;
    one.snapshot.state = state_of(shadow);
    one.snapshot.bytes = shadow.bytes;
    one.snapshot.total_bytes = shadow.total_bytes;
    one.snapshot.node = asked.node;
    one.snapshot.region = asked.region;
    one.snapshot.remote_region = asked.remote_region;
    one.snapshot.direction = asked.direction;
    one.snapshot.lane = asked.lane;
    one.snapshot.started = asked.accepted;
    one.on = asked.on;
    one.on_as = shadow.on_as;
  }
  return all;
}

std::optional<Shadows::Unfinished> Shadows::unfinished(TransferId transfer) const {
  const auto entry = shadows_.find(transfer);
  if (entry == shadows_.end()) return std::nullopt;
  const Shadow& shadow = entry->second;
  return Unfinished{std::string(name_of(state_of(shadow))), result_of(shadow)};
}

}  // namespace penstock
