#include "actors/device/inbound.hpp"

#include <algorithm>

namespace penstock {

Inbound::Inbound(Options options, std::vector<InboundCard> cards, RegionTable& regions, Port port)
    : options_(std::move(options)),
      cards_(std::move(cards)),
      regions_(regions),
      port_(std::move(port)) {}

// -- open ----------------------------------------------------------------------------------------

void Inbound::open(Incarnation peer, const std::string& node, std::uint64_t sequence,
                   const Open& question, TimePoint now) {
  const Key key{peer, question.transfer};
  auto refuse = [&](Error error) { port_.answer(peer, sequence, Refused{std::move(error)}); };
  if (auto found = transfers_.find(key); found != transfers_.end()) {
    if (found->second.state == State::kEnded)
      return refuse({ErrorCode::kCancelled,
                     fmt::format("transfer {} has been fenced here", question.transfer)});
    return port_.answer(peer, sequence, found->second.answer);
  }
  if (draining_)
    return refuse({ErrorCode::kDraining, "the node is draining: send new work elsewhere"});
  if (open_ >= options_.open_most)
    return refuse(
        {ErrorCode::kResourceExhausted,
         fmt::format("{} transfers are open on device {}: try later", open_, options_.device)});
  auto use = regions_.use(question.region, question.epoch);
  if (!use) return refuse(use.error());
  if (question.end > (*use)->bytes)
    return refuse({ErrorCode::kOutOfRange,
                   fmt::format("the transfer reaches byte {} of region '{}', which has {}",
                               question.end, question.region, (*use)->bytes)});

  Transfer& transfer = transfers_[key];
  transfer.node = node;
  transfer.region = std::move(*use);
  transfer.direction = question.direction;
  transfer.notify = question.notify;
  transfer.bytes = question.bytes;
  if (question.chunks > 0 && options_.immediate_data) transfer.immediate = slots_.take();
  if (transfer.immediate) {
    by_immediate_.emplace(*transfer.immediate, key);
    port_.command(ArmImmediate{*transfer.immediate, question.chunks});
  }
  transfer.answer = {options_.device, transfer.immediate, transfer.region->epoch,
                     transfer.region->bytes, hand_keys(transfer)};
  ++open_;
  transfer.due = TimePoint::max();
  set_due(key, transfer, now + Milliseconds(question.lease_ms));
  port_.answer(peer, sequence, transfer.answer);
}

std::vector<RegionKey> Inbound::hand_keys(Transfer& transfer) const {
  std::vector<RegionKey> keys;
  const auto exported = transfer.region->exported();
  transfer.handed.assign(exported.size(), {});
  const auto cards = static_cast<std::uint16_t>(exported.size());
  for (std::uint16_t i = 0; i < cards; ++i) {
    // While a card is being rekeyed nobody can say which key is meant.
    if (!exported[i] || rekeying_.contains({transfer.region.region(), i})) continue;
    transfer.handed[i] = exported[i];
    keys.push_back({i, exported[i]->remote_base(), exported[i]->key()});
  }
  return keys;
}

bool Inbound::holds_key(const Transfer& transfer, std::uint16_t nic) {
  return nic < transfer.handed.size() && !transfer.handed[nic].expired();
}

// -- done ----------------------------------------------------------------------------------------

void Inbound::counted(std::uint32_t immediate, TimePoint now) {
  auto found = by_immediate_.find(immediate);
  if (found == by_immediate_.end()) return;
  const Key key = found->second;
  Transfer& transfer = transfers_.at(key);
  if (transfer.state == State::kOpen) done(key, transfer, now);
}

void Inbound::done(const Key& key, Transfer& transfer, TimePoint now) {
  transfer.state = State::kDone;
  --open_;
  if (!transfer.notify.empty())
    port_.notify({transfer.node, key.second, transfer.region->name, transfer.bytes,
                  std::move(transfer.notify)});
  transfer.region.reset();
  set_due(key, transfer, now + options_.remember);
}

void Inbound::fin(Incarnation peer, std::uint64_t sequence, const Fin& question, TimePoint now) {
  const Key key{peer, question.transfer};
  auto found = transfers_.find(key);
  if (found == transfers_.end() || found->second.state == State::kEnded ||
      found->second.state == State::kFencing)
    return port_.answer(peer, sequence,
                        Refused{{ErrorCode::kCancelled,
                                 fmt::format("transfer {} is not open here any more: its lease "
                                             "ended or it was fenced",
                                             question.transfer)}});
  if (found->second.state == State::kOpen) done(key, found->second, now);
  free_slot(found->second);
  port_.answer(peer, sequence, FinOk{});
}

void Inbound::free_slot(Transfer& transfer) {
  if (!transfer.immediate) return;
  port_.command(DisarmImmediate{*transfer.immediate});
  by_immediate_.erase(*transfer.immediate);
  slots_.give_back(*transfer.immediate);
  transfer.immediate.reset();
}

// -- fences --------------------------------------------------------------------------------------

void Inbound::fence(Incarnation peer, std::uint64_t sequence, const Fence& question,
                    TimePoint now) {
  const Key key{peer, question.transfer};
  auto found = transfers_.find(key);
  if (found == transfers_.end()) {
    forget(peer, question.transfer, now);
    found = transfers_.find(key);
  }
  Transfer& transfer = found->second;
  switch (transfer.state) {
    case State::kDone:
      free_slot(transfer);
      return port_.answer(peer, sequence, AlreadyDone{});
    case State::kEnded:
      if (question.final) return port_.answer(peer, sequence, Fenced{cards_, {}});
      return port_.answer(peer, sequence, Refused{cause_of(transfer)});
    case State::kFencing:
      transfer.sequence = sequence;
      transfer.final = question.final;
      return;  // the answer follows when the cards are quiet
    case State::kOpen:
      transfer.sequence = sequence;
      transfer.final = question.final;
      return start_fence(key, transfer, question.cards, now);
  }
}

void Inbound::start_fence(const Key& key, Transfer& transfer, const std::vector<Fence::Card>& cards,
                          TimePoint now) {
  transfer.state = State::kFencing;
  for (const auto& card : cards) {
    if (card.nic >= cards_.size()) continue;
    // An initiator that does not know of our own fence may follow the card to where it is opened
    // anew and go on: only without its key it cannot.
    if (options_.fence == FenceKind::kRekey || transfer.cause) void_key(transfer, card.nic);
    if (options_.fence == FenceKind::kRekey) continue;
    // What was posted under an older generation cannot land any more.
    const std::uint32_t generation = cards_[card.nic].generation;
    if (card.generation < generation) continue;
    transfer.reopening.insert(card.nic);
    if (reopening_.insert(card.nic).second) port_.command(ReopenInbound{card.nic, generation});
  }
  if (transfer.reopening.empty() && transfer.rekeying.empty()) fence_complete(key, transfer, now);
}

void Inbound::void_key(Transfer& transfer, std::uint16_t nic) {
  const auto region = transfer.region.region();
  if (!rekeying_.contains({region, nic})) {
    if (!holds_key(transfer, nic)) return;  // void already
    rekeying_.emplace(region, nic);
    port_.rekey(region, nic);
  }
  transfer.rekeying.insert(nic);
}

void Inbound::fence_complete(const Key& key, Transfer& transfer, TimePoint now) {
  free_slot(transfer);  // nothing that carries it can arrive, and re-posted chunks carry none
  const auto sequence = std::exchange(transfer.sequence, std::nullopt);
  if (transfer.cause) {
    port_.broken(key.first, key.second, *transfer.cause);
    end(key, transfer, now);
    if (!sequence) return;
    if (transfer.final) return port_.answer(key.first, *sequence, Fenced{cards_, {}});
    return port_.answer(key.first, *sequence, Refused{cause_of(transfer)});
  }
  Fenced answer{cards_, hand_keys(transfer)};
  if (transfer.final)
    end(key, transfer, now);
  else
    transfer.state = State::kOpen;
  if (sequence) port_.answer(key.first, *sequence, std::move(answer));
}

Error Inbound::cause_of(const Transfer& transfer) {
  return transfer.cause.value_or(
      Error{ErrorCode::kCancelled, "the transfer is not open at its owner any more"});
}

void Inbound::end(const Key& key, Transfer& transfer, TimePoint now) {
  if (transfer.state != State::kEnded) --open_;
  transfer.state = State::kEnded;
  transfer.region.reset();
  transfer.notify.clear();
  set_due(key, transfer, now + options_.remember);
}

void Inbound::forget(Incarnation peer, TransferId id, TimePoint now) {
  const Key key{peer, id};
  auto [found, fresh] = transfers_.try_emplace(key);
  Transfer& transfer = found->second;
  if (fresh) {
    transfer.state = State::kEnded;
    transfer.due = TimePoint::max();
    set_due(key, transfer, now + options_.remember);
  } else if (transfer.state == State::kOpen) {
    free_slot(transfer);
    end(key, transfer, now);
  }
}

void Inbound::own_fence(const Key& key, Transfer& transfer, Error cause, TimePoint now) {
  if (transfer.state == State::kFencing) {  // the peer's fence turns into ours
    transfer.cause = std::move(cause);
    return;
  }
  if (transfer.state != State::kOpen) return;
  transfer.cause = std::move(cause);
  transfer.sequence.reset();
  std::vector<Fence::Card> all;
  for (const auto& card : cards_) all.push_back({card.nic, card.generation});
  start_fence(key, transfer, all, now);
}

void Inbound::reopened(const InboundReopened& event, TimePoint now) {
  reopening_.erase(event.nic);
  if (event.nic < cards_.size()) {
    cards_[event.nic].generation = event.generation;
    cards_[event.nic].address = event.address;
  }
  for (auto& [key, transfer] : transfers_) transfer.reopening.erase(event.nic);
  complete_fences(now);
}

void Inbound::rekeyed(const std::string& region, std::uint16_t nic, TimePoint now) {
  std::erase_if(rekeying_,
                [&](const auto& each) { return each.second == nic && each.first->name == region; });
  for (auto& [key, transfer] : transfers_)
    if (transfer.region && transfer.region->name == region) transfer.rekeying.erase(nic);
  complete_fences(now);
}

void Inbound::complete_fences(TimePoint now) {
  std::vector<Key> quiet;
  for (const auto& [key, transfer] : transfers_)
    if (transfer.state == State::kFencing && transfer.reopening.empty() &&
        transfer.rekeying.empty())
      quiet.push_back(key);
  for (const Key& key : quiet) fence_complete(key, transfers_.at(key), now);
}

// -- peers, regions, time ------------------------------------------------------------------------

void Inbound::peer_down(Incarnation peer, const Error& error, TimePoint now) {
  std::vector<Key> keys;
  for (auto it = transfers_.lower_bound({peer, 0});
       it != transfers_.end() && it->first.first == peer; ++it)
    keys.push_back(it->first);
  for (const Key& key : keys) {
    Transfer& transfer = transfers_.at(key);
    if (transfer.state == State::kDone) free_slot(transfer);
    own_fence(key, transfer, error, now);
  }
}

void Inbound::revoke(const std::string& region, TimePoint now) {
  std::set<std::pair<Incarnation, std::uint64_t>> told;
  for (auto& [key, transfer] : transfers_) {
    if (!transfer.region || transfer.region->name != region) continue;
    if (told.emplace(key.first, transfer.region->epoch).second)
      port_.revoke(key.first, Revoke{region, transfer.region->epoch});
    set_due(key, transfer, std::min(transfer.due, now + options_.grace_max));
  }
}

void Inbound::set_due(const Key& key, Transfer& transfer, TimePoint due) {
  due_.erase({transfer.due, key});
  transfer.due = due;
  due_.emplace(due, key);
}

void Inbound::tick(TimePoint now) {
  while (!due_.empty() && due_.begin()->first <= now) {
    const Key key = due_.begin()->second;
    due_.erase(due_.begin());
    auto found = transfers_.find(key);
    Transfer& transfer = found->second;
    transfer.due = TimePoint::max();
    if (transfer.state == State::kDone || transfer.state == State::kEnded) {
      free_slot(transfer);
      transfers_.erase(found);
      continue;
    }
    const Error cause =
        transfer.region->closing
            ? Error{ErrorCode::kStaleRegion, "the region was released under the transfer"}
            : Error{ErrorCode::kDeadlineExceeded, "the initiator's lease ended without a word"};
    own_fence(key, transfer, cause, now);
  }
}

TimePoint Inbound::next_tick() const {
  return due_.empty() ? TimePoint::max() : due_.begin()->first;
}

}  // namespace penstock
