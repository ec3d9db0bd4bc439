#include "actors/node/streams.hpp"

#include <algorithm>

namespace penstock {
namespace {

tl::unexpected<Error> unknown(TransferId stream) {
  return fail(ErrorCode::kNotFound,
              "no stream {} is known here: it ended long ago, or this service was restarted",
              stream);
}

}  // namespace

void Streams::open(TransferId id, Terms terms) {
  while (!ended_.empty() && !port_.remembered(ended_.front())) {
    streams_.erase(ended_.front());
    ended_.pop_front();
  }
  Stream stream;
  TransferResult& result = stream.result;
  result.id = id;
  result.node = terms.node;
  result.region = terms.spec.region;
  result.remote_region = terms.spec.targets.front().region;
  result.direction = terms.spec.direction == Direction::kWrite ? "write" : "read";
  result.lane = terms.spec.lane == Lane::kBulk ? "bulk" : "urgent";
  result.parts = TransferResult::Parts{};  // clang 14 finds no emplace()
  result.stages.enter(Stage::kAdmission, terms.received);
  result.stages.enter(Stage::kOpen, terms.accepted);
  deadlines_.emplace(terms.deadline, id);
  live_.insert(id);
  ++open_of_[terms.owner];
  stream.terms = std::move(terms);
  streams_.emplace(id, std::move(stream));
}

// -- parts ---------------------------------------------------------------------------------------

Result<Streams::Next> Streams::next(const AppendRequest& request) const {
  const auto found = streams_.find(request.stream);
  if (found == streams_.end()) return unknown(request.stream);
  const Stream& stream = found->second;
  if (request.part < stream.parts.size()) return Next{stream.parts[request.part]};
  if (stream.state == State::kClosing)
    return fail(ErrorCode::kInvalidArgument, "stream {} is closed: it has {} parts", request.stream,
                stream.parts.size());
  if (stream.state != State::kOpen) return tl::unexpected(why_ended(stream));
  if (request.part > stream.parts.size())
    return fail(ErrorCode::kInvalidArgument,
                "part {} of stream {} was appended, and part {} is missing: parts come in order",
                request.part, request.stream, stream.parts.size());
  if (request.part >= kMostParts)
    return fail(ErrorCode::kResourceExhausted,
                "a stream has at most {} parts: close this one and open another", kMostParts);
  Next next{0, stream.terms.spec, stream.terms.deadline};
  next.spec.key.clear();  // the stream's
  next.spec.layout = request.layout;
  if (!request.notify.empty()) next.spec.notify = request.notify;
  next.spec.start_after = request.start_after;
  next.spec.record_event = request.record_event;
  return next;
}

void Streams::appended(TransferId id, TransferId part, std::uint64_t bytes) {
  Stream& stream = streams_.at(id);
  stream.parts.push_back(part);
  stream.under_way.insert(part);
  stream.total_bytes += bytes;
  ++stream.result.parts->appended;
}

void Streams::refused(TransferId id, std::uint32_t part, const Error& error, TimePoint now) {
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second.state != State::kOpen) return;
  stop(id, Outcome::kFailed,
       {error.code, fmt::format("part {} was refused: {}", part, error.message)}, true, now);
}

Result<void> Streams::can_close(const CloseRequest& request) const {
  const auto found = streams_.find(request.stream);
  if (found == streams_.end()) return unknown(request.stream);
  const Stream& stream = found->second;
  const bool well = stream.state == State::kOpen || stream.state == State::kClosing ||
                    (stream.state == State::kEnded && stream.result.state == Outcome::kDone);
  if (!well) return tl::unexpected(why_ended(stream));
  if (stream.parts.size() != request.parts)
    return fail(ErrorCode::kInvalidArgument, "stream {} has {} parts, and was to be closed with {}",
                request.stream, stream.parts.size(), request.parts);
  return {};
}

void Streams::close(const CloseRequest& request, TimePoint now) {
  const auto found = streams_.find(request.stream);
  if (found == streams_.end() || found->second.state != State::kOpen) return;
  Stream& stream = found->second;
  if (auto can = can_close(request); !can)
    return stop(request.stream, Outcome::kFailed, can.error(), true, now);
  stream.state = State::kClosing;
  stream.closed = true;
  stream.result.stages.enter(Stage::kClosing, now);
  settle(request.stream, now);
}

void Streams::part_ended(const TransferResult& part, TimePoint now) {
  const auto found = streams_.find(part.stream);
  if (found == streams_.end() || found->second.under_way.erase(part.id) == 0) return;
  TransferResult& sum = found->second.result;
  const bool done = part.state == Outcome::kDone;
  sum.parts->done += done;
  sum.bytes += part.bytes;
  sum.writes += part.writes;
  if (part.remote_epoch != 0) sum.remote_epoch = part.remote_epoch;
  if (part.remote == TransferResult::Remote::kUnreachable) sum.remote = part.remote;
  if (!part.path.empty() && part.path != sum.path)
    sum.path = sum.path.empty() ? part.path : "mixed";
  for (const auto& [name, share] : part.cards) {
    auto card = std::ranges::find(sum.cards, name, [](const auto& entry) { return entry.first; });
    if (card == sum.cards.end()) card = sum.cards.insert(sum.cards.end(), {name, CardShare{}});
    card->second.bytes += share.bytes;
    card->second.writes += share.writes;
  }
  if (!done)
    stop(part.stream, part.state,
         {part.error.code, fmt::format("part {} (transfer {}) ended as {}: {}", part.part, part.id,
                                       penstock::name_of(part.state), part.error.message)},
         true, now);
  settle(part.stream, now);
}

// -- the end -------------------------------------------------------------------------------------

bool Streams::cancel(TransferId id, TimePoint now) {
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second.state == State::kEnded) return false;
  stop(id, Outcome::kCancelled, {ErrorCode::kCancelled, "the stream was cancelled"}, true, now);
  return true;
}

void Streams::expire(TimePoint now) {
  while (next_deadline() <= now) {
    const TransferId id = deadlines_.begin()->second;
    const Stream& stream = streams_.at(id);
    const auto length =
        std::chrono::duration_cast<Milliseconds>(stream.terms.deadline - stream.terms.accepted);
    deadlines_.erase(deadlines_.begin());
    stop(id, Outcome::kExpired,
         {ErrorCode::kDeadlineExceeded,
          fmt::format("the stream did not end within its {} ms", length.count())},
         false, now);
  }
}

void Streams::stop(TransferId id, Outcome outcome, Error error, bool cancel_parts, TimePoint now) {
  Stream& stream = streams_.at(id);
  if (stream.state == State::kOpen || stream.state == State::kClosing) {
    stream.state = State::kStopping;
    stream.result.state = outcome;
    stream.result.error = std::move(error);
    stream.result.stages.enter(Stage::kClosing, now);
  }
  const std::vector<TransferId> parts(stream.under_way.begin(), stream.under_way.end());
  if (cancel_parts)
    for (TransferId part : parts) port_.cancel(part);
  settle(id, now);
}

void Streams::settle(TransferId id, TimePoint now) {
  Stream& stream = streams_.at(id);
  if (stream.state == State::kOpen || stream.state == State::kEnded || !stream.under_way.empty())
    return;
  stream.state = State::kEnded;
  if (stream.closed && stream.result.parts->done == stream.parts.size()) {
    stream.result.state = Outcome::kDone;  // it was faster than what should have stopped it
    stream.result.error = {};
  }
  live_.erase(id);
  if (auto open = open_of_.find(stream.terms.owner); --open->second == 0) open_of_.erase(open);
  deadlines_.erase({stream.terms.deadline, id});
  ended_.push_back(id);
  TransferResult result = result_of(stream, now);
  stream.terms = {};
  stream.result.stages = {};
  port_.ended(std::move(result));
}

TransferResult Streams::result_of(const Stream& stream, TimePoint now) {
  TransferResult result = stream.result;
  result.elapsed_us = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(now - stream.terms.accepted).count());
  return result;
}

Error Streams::why_ended(const Stream& stream) {
  const TransferResult& result = stream.result;
  if (result.state == Outcome::kDone)
    return {ErrorCode::kInvalidArgument,
            fmt::format("stream {} is closed: it has {} parts", result.id, stream.parts.size())};
  return {result.error.code, fmt::format("stream {} takes nothing more, it is {}: {}", result.id,
                                         penstock::name_of(result.state), result.error.message)};
}

// -- for those who look --------------------------------------------------------------------------

std::string_view Streams::name_of(State state) {
  constexpr std::string_view kNames[] = {"open", "closing", "stopping", "ended"};
  return kNames[static_cast<unsigned char>(state)];
}

std::vector<TransferId> Streams::newest(std::size_t limit) const {
  std::vector<TransferId> ids;
  for (auto id = live_.rbegin(); id != live_.rend() && ids.size() < limit; ++id) ids.push_back(*id);
  return ids;
}

nlohmann::json Streams::report(TransferId id, std::uint64_t moving, TimePoint now) const {
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second.state == State::kEnded) return nullptr;
  const TransferResult result = result_of(found->second, now);
  return {{"id", id},
          {"state", name_of(found->second.state)},
          {"node", result.node},
          {"region", result.region},
          {"remote_region", result.remote_region},
          {"direction", result.direction},
          {"lane", result.lane},
          {"bytes", result.bytes + moving},
          {"total_bytes", found->second.total_bytes},
          {"elapsed_us", result.elapsed_us},
          {"parts", result.parts->appended},
          {"parts_done", result.parts->done}};
}

std::optional<TransferResult> Streams::unfinished(TransferId id, TimePoint now) const {
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second.state == State::kEnded) return std::nullopt;
  return result_of(found->second, now);
}

}  // namespace penstock
