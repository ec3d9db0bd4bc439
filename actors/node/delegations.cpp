#include "actors/node/delegations.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

/// As many whole triples as one message takes.
constexpr std::size_t kLandedValues = kMaxInlineBytes / 2 / sizeof(std::uint64_t) / 3 * 3;
constexpr std::size_t kErrorBytes = 2048;
constexpr std::size_t kCards = 32;

DelegatedEnded told(const TransferResult& result, TransferId asker_id) {
  DelegatedEnded end;
  end.transfer = asker_id;
  end.executed_as = result.id;
  end.state = static_cast<std::uint8_t>(result.state);
  end.unreachable = result.remote == TransferResult::Remote::kUnreachable;
  end.remote_epoch = result.remote_epoch;
  end.bytes = result.bytes;
  end.writes = result.writes;
  end.path = result.path;
  for (const auto& [name, share] : result.cards)
    if (end.cards.size() < kCards) end.cards.push_back({name, share.bytes, share.writes});
  if (result.state == TransferResult::State::kDone) return end;
  end.error = {result.error.code, result.error.message.substr(0, kErrorBytes)};
  const std::size_t values = std::min(result.landed.size(), kLandedValues);
  end.landed.bytes.resize(values * sizeof(std::uint64_t));
  if (!result.landed.empty())
    std::memcpy(end.landed.bytes.data(), result.landed.data(), end.landed.bytes.size());
  end.landed_truncated = result.landed_truncated || values < result.landed.size();
  return end;
}

Answer refused(Error error) { return Refused{std::move(error)}; }

Answer refused_as_former(const std::string& name) {
  return refused({ErrorCode::kStalePeer,
                  fmt::format("node '{}' has restarted since: this is of its former life", name)});
}

}  // namespace

Delegations::Asker* Delegations::asker_of(const std::string& name, Incarnation peer) {
  if (const auto known = askers_.find(name); known != askers_.end()) {
    if (known->second.incarnation > peer) return nullptr;
    if (known->second.incarnation < peer) asker_lost(name, true);
  }
  Asker& asker = askers_[name];
  asker.incarnation = peer;
  return &asker;
}

// -- what askers ask -----------------------------------------------------------------------------

Answer Delegations::delegate(const std::string& name, Incarnation peer, const Delegate& part,
                             TimePoint now) {
  Asker* const asking = asker_of(name, peer);
  if (asking == nullptr) return refused_as_former(name);
  Asker& asker = *asking;
  forget(asker, now);
  const auto known = asker.entries.find(part.transfer);
  if (known != asker.entries.end()) {
    Entry& entry = known->second;
    if (entry.state == State::kArriving) return arrive(name, asker, entry, part, now);
    if (entry.state == State::kRefused) return refused(entry.refused);
    return Delegated{entry.executed_as};
  }
  if (part.transfer == 0 || part.transfer <= asker.forgotten)
    return refused({ErrorCode::kStalePeer,
                    fmt::format("transfer {} of node '{}' ended long ago", part.transfer, name)});
  Entry& entry = asker.entries[part.transfer];
  if (auto error = no_room(name, asker, part.total))
    return refuse(asker, part.transfer, entry, std::move(*error), now);
  asker.arriving.emplace(entry.touched, part.transfer);
  asker.arriving_bytes += part.total;
  entry.total = part.total;
  entry.request = std::make_shared<std::vector<std::byte>>();
  return arrive(name, asker, entry, part, now);
}

std::optional<Error> Delegations::no_room(const std::string& name, const Asker& asker,
                                          std::uint64_t bytes) const {
  if (bytes > options_.request_bytes)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("a request of {} bytes, request.max_request_bytes is {}: split it",
                             bytes, options_.request_bytes)};
  if (asker.arriving.size() >= options_.arriving_most)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} requests are arriving from node '{}', as many as may: ask again",
                             asker.arriving.size(), name)};
  if (asker.arriving_bytes + bytes > options_.arriving_bytes)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("requests of {} bytes are arriving from node '{}', {} more do not "
                             "fit: ask again",
                             asker.arriving_bytes, name, bytes)};
  return std::nullopt;
}

Answer Delegations::arrive(const std::string& name, Asker& asker, Entry& entry,
                           const Delegate& part, TimePoint now) {
  asker.arriving.erase({entry.touched, part.transfer});
  entry.touched = now;
  asker.arriving.emplace(now, part.transfer);
  std::vector<std::byte>& request = *entry.request;
  const auto& bytes = part.part.bytes;
  if (bytes.empty() && part.total > 0)
    return refuse(asker, part.transfer, entry,
                  {ErrorCode::kInvalidArgument,
                   fmt::format("a part without bytes, of a request of {}", part.total)},
                  now);
  if (part.offset + bytes.size() <= request.size() && request.size() < entry.total)
    return Delegated{};  // it came before
  if (part.offset != request.size() || part.total != entry.total ||
      bytes.size() > entry.total - request.size())
    return refuse(
        asker, part.transfer, entry,
        {ErrorCode::kInvalidArgument,
         fmt::format("bytes {} to {} of {} do not follow the {} of {} that are here", part.offset,
                     part.offset + bytes.size(), part.total, request.size(), entry.total)},
        now);
  request.insert(request.end(), bytes.begin(), bytes.end());
  if (request.size() < entry.total) return Delegated{};

  const auto whole = entry.request;
  drop_request(asker, part.transfer, entry);
  auto accepted = port_.run(name, part, whole);
  if (!accepted) return refuse(asker, part.transfer, entry, std::move(accepted.error()), now);
  entry.state = State::kRunning;
  entry.executed_as = *accepted;
  runs_[*accepted] = {name, asker.incarnation, part.transfer};
  return Delegated{*accepted};
}

Answer Delegations::refuse(Asker& asker, TransferId transfer, Entry& entry, Error error,
                           TimePoint now) {
  drop_request(asker, transfer, entry);
  entry.state = State::kRefused;
  entry.refused = std::move(error);
  asker.over.emplace_back(now, transfer);
  return refused(entry.refused);
}

void Delegations::drop_request(Asker& asker, TransferId transfer, Entry& entry) {
  if (!entry.request) return;
  asker.arriving.erase({entry.touched, transfer});
  asker.arriving_bytes -= entry.total;
  entry.request = nullptr;
}

Answer Delegations::stop(const std::string& name, Incarnation peer, const StopDelegated& stop,
                         TimePoint now) {
  Asker* const asking = asker_of(name, peer);
  if (asking == nullptr) return refused_as_former(name);
  Asker& asker = *asking;
  forget(asker, now);
  if (stop.transfer <= asker.forgotten && !asker.entries.contains(stop.transfer))
    return StopSeen{false};
  Entry& entry = asker.entries[stop.transfer];
  switch (entry.state) {
    case State::kArriving:
      // Also when nothing of it has come yet: what does is refused.
      refuse(asker, stop.transfer, entry, {ErrorCode::kCancelled, "it was stopped before"}, now);
      return StopSeen{false};
    case State::kRunning:
      port_.cancel(entry.executed_as);
      return StopSeen{true};
    case State::kEnded:
      tell(name, asker, entry, now);
      return StopSeen{true};
    case State::kTold:
    case State::kRefused:
      break;
  }
  return StopSeen{false};
}

Delegations::Place Delegations::place_of(const std::string& name, Incarnation peer,
                                         TransferId transfer, TimePoint now) {
  // Only looks: the answer was asked for a while ago, the node may have restarted since.
  const auto found = askers_.find(name);
  if (found == askers_.end() || found->second.incarnation != peer) return {0, "unknown"};
  Asker& asker = found->second;
  const auto known = asker.entries.find(transfer);
  if (known == asker.entries.end()) return {0, "unknown"};
  Entry& entry = known->second;
  if (entry.state == State::kRunning) return {entry.executed_as, ""};
  if (entry.state == State::kEnded) tell(name, asker, entry, now);
  return {0, "ended"};
}

// -- what happens here ---------------------------------------------------------------------------

bool Delegations::ended(const TransferResult& result, TimePoint now) {
  const auto found = runs_.find(result.id);
  if (found == runs_.end()) return false;
  const Run run = std::move(found->second);
  runs_.erase(found);
  const auto asker = askers_.find(run.asker);
  if (asker == askers_.end() || asker->second.incarnation != run.incarnation) return true;
  const auto entry = asker->second.entries.find(run.transfer);
  if (entry == asker->second.entries.end()) return true;
  entry->second.state = State::kEnded;
  entry->second.end = told(result, run.transfer);
  asker->second.over.emplace_back(now, run.transfer);
  if (asker->second.here) ++untold_;
  tell(run.asker, asker->second, entry->second, now);
  return true;
}

void Delegations::tell(const std::string& name, Asker& asker, Entry& entry, TimePoint now) {
  if (entry.telling || !asker.here) return;
  entry.telling = true;
  const std::uint64_t token = next_token_++;
  tellings_[token] = {name, asker.incarnation, entry.end->transfer};
  port_.ask(name, token, *entry.end, now + options_.telling);
}

void Delegations::answered(std::uint64_t token, const Result<Answer>& answer) {
  const auto found = tellings_.find(token);
  if (found == tellings_.end()) return;
  const Run telling = std::move(found->second);
  tellings_.erase(found);
  const auto asker = askers_.find(telling.asker);
  if (asker == askers_.end() || asker->second.incarnation != telling.incarnation) return;
  const auto known = asker->second.entries.find(telling.transfer);
  if (known == asker->second.entries.end() || !known->second.telling) return;
  Entry& entry = known->second;
  entry.telling = false;
  if (!answer) return;  // told again when it is back, or looks
  entry.state = State::kTold;
  entry.end.reset();
  if (asker->second.here) --untold_;
}

void Delegations::asker_lost(const std::string& name, bool gone) {
  const auto found = askers_.find(name);
  if (found == askers_.end()) return;
  Asker& asker = found->second;
  std::erase_if(tellings_, [&](const auto& each) { return each.second.asker == name; });
  for (auto& [transfer, entry] : asker.entries) {
    if (entry.state == State::kRunning) port_.cancel(entry.executed_as);
    if (entry.state == State::kEnded && asker.here) --untold_;
    entry.telling = false;
  }
  for (const auto& [touched, transfer] : asker.arriving) asker.entries.erase(transfer);
  asker.arriving.clear();
  asker.arriving_bytes = 0;
  asker.here = false;
  if (gone) askers_.erase(found);
}

void Delegations::asker_back(const std::string& name, TimePoint now) {
  const auto found = askers_.find(name);
  if (found == askers_.end() || found->second.here) return;
  found->second.here = true;
  for (auto& [transfer, entry] : found->second.entries)
    if (entry.state == State::kEnded) {
      ++untold_;
      tell(name, found->second, entry, now);
    }
}

void Delegations::forget(Asker& asker, TimePoint now) {
  while (!asker.over.empty() && (asker.over.size() > options_.keep_most ||
                                 asker.over.front().first + options_.keep < now)) {
    const TransferId transfer = asker.over.front().second;
    asker.over.pop_front();
    const auto entry = asker.entries.find(transfer);
    if (entry == asker.entries.end()) continue;
    if (entry->second.state == State::kEnded && asker.here) --untold_;
    asker.entries.erase(entry);
    asker.forgotten = std::max(asker.forgotten, transfer);
  }
  while (!asker.arriving.empty() && asker.arriving.begin()->first + options_.arriving_kept < now) {
    const TransferId transfer = asker.arriving.begin()->second;
    refuse(asker, transfer, asker.entries.at(transfer),
           {ErrorCode::kDeadlineExceeded, "the rest of the request did not come"}, now);
  }
}

}  // namespace penstock
