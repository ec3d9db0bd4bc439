#include "actors/device/inbound.hpp"

#include <algorithm>

#include "transport/packing/packed_buffer.hpp"

namespace penstock {
namespace {

/// Lent to a staged transfer at least, where so many are free: what is in flight has to hide the
/// copies at both ends.
constexpr std::uint32_t kStagedSlots = 8;

/// A question whose answer is lost comes again within this (Peer::Options::repeat_first, or as soon
/// as its link has failed).
constexpr Milliseconds kRepeated{500};

}  // namespace

Inbound::Inbound(Options options, std::vector<InboundCard> cards, RegionTable& regions,
                 std::shared_ptr<StagingPool> staging, Port port)
    : options_(std::move(options)),
      cards_(std::move(cards)),
      regions_(regions),
      staging_(std::move(staging)),
      port_(std::move(port)) {}

// -- open ----------------------------------------------------------------------------------------

void Inbound::open(Incarnation peer, const std::string& node, std::uint64_t sequence,
                   const Open& question, std::vector<LinkId> credit_links,
                   std::optional<TimePoint> asked_at, TimePoint now) {
  const Key key{peer, question.transfer};
  auto refuse = [&](Error error) { port_.answer(peer, sequence, Refused{std::move(error)}); };
  if (auto found = transfers_.find(key); found != transfers_.end()) {
    if (found->second.state == State::kEnded)
      return refuse({ErrorCode::kCancelled,
                     fmt::format("transfer {} has been fenced here", question.transfer)});
    if (found->second.state == State::kDone) return port_.answer(peer, sequence, AlreadyDone{});
    return port_.answer(peer, sequence, found->second.answer);
  }
  // Asked again it is younger, and goes on.
  if (asked_at && may_be_over(question, *asked_at, now))
    return refuse({ErrorCode::kBusy, "the question was under way for too long: ask again"});
  // Keys go out to an older version as ever; data would be written at once.
  if (!asked_at && !question.data.bytes.empty())
    return refuse({ErrorCode::kUnsupported, "nobody can tell how old the question's data is"});
  if (question.shadow != 0 && !(port_.waits_for && port_.waits_for(question.shadow)))
    return refuse(
        {ErrorCode::kCancelled,
         fmt::format("transfer {} was asked for here and has been given up", question.transfer)});
  if (draining_)
    return refuse({ErrorCode::kDraining, "the node is draining: send new work elsewhere"});
  if (open_ >= options_.open_most || transfers_.size() >= options_.known_most)
    return refuse(
        {ErrorCode::kResourceExhausted,
         fmt::format("{} transfers are open on device {}: try later", open_, options_.device)});
  auto use = regions_.use(question.region, question.epoch);
  if (!use) return refuse(use.error());
  if (question.end > (*use)->bytes)
    return refuse({ErrorCode::kOutOfRange,
                   fmt::format("the transfer reaches byte {} of region '{}', which has {}",
                               question.end, question.region, (*use)->bytes)});

  // An initiator that is refused like this asks again without data.
  if (!question.data.bytes.empty() && (*use)->on_gpu())
    return refuse({ErrorCode::kUnsupported, "memory of a GPU takes no data with the question"});
  const bool staged = question.staged || (*use)->needs_staging();
  if (staged)
    if (const auto error = cannot_stage(question, **use, credit_links)) return refuse(*error);
  if (!question.data.bytes.empty())
    return take_inline(key, node, sequence, question, std::move(*use), now);

  Transfer& transfer = transfers_[key];
  transfer.node = node;
  transfer.region = std::move(*use);
  transfer.direction = question.direction;
  transfer.notify = question.notify;
  transfer.stream = question.stream;
  transfer.part = question.part;
  transfer.shadow = question.shadow;
  transfer.bytes = question.bytes;
  transfer.staged = staged;
  if (staged) {
    transfer.answer.staging = lend(transfer, std::max(question.pack_slots, kStagedSlots));
    if (!transfer.answer.staging) {
      transfers_.erase(key);
      return refuse({ErrorCode::kBusy,
                     fmt::format("all staging slots of device {} are lent", options_.device)});
    }
    transfer.credit_links = credit_links;
  } else if (question.chunks > 0 && options_.immediate_data) {
    transfer.immediate = slots_.take();
  }
  if (transfer.immediate) {
    by_immediate_.emplace(*transfer.immediate, key);
    port_.command(ArmImmediate{*transfer.immediate, question.chunks});
  }
  OpenOk& answer = transfer.answer;
  answer.device = options_.device;
  answer.immediate = transfer.immediate;
  answer.epoch = transfer.region->epoch;
  answer.region_bytes = transfer.region->bytes;
  answer.staged = staged;
  answer.on_gpu = transfer.region->on_gpu();
  if (!staged) answer.keys = hand_keys(transfer, transfer.region.region());
  // A card that reaches a GPU's memory needs no help with small pages that a kernel would give.
  if (!staged && question.pack_slots > 0 && question.direction == Direction::kWrite &&
      !credit_links.empty() && !answer.on_gpu)
    answer.staging = lend(transfer, question.pack_slots);
  if (answer.staging) arm_slots(question.transfer, transfer, std::move(credit_links));
  count_open();
  transfer.due = TimePoint::max();
  set_due(key, transfer, now + Milliseconds(question.lease_ms));
  port_.answer(peer, sequence, transfer.answer);
}

/// Whether the transfer may have been open here and be forgotten, or its lease be over: somebody
/// may count on it by then that nothing of it lands. A fence never comes before its Open was sent,
/// and is remembered for a while.
bool Inbound::may_be_over(const Open& question, TimePoint asked_at, TimePoint now) const {
  const auto fresh = std::min(Milliseconds(question.lease_ms), options_.remember);
  return asked_at + fresh < now;
}

/// The data came with the question: it is written here and now, and the transfer is done.
void Inbound::take_inline(const Key& key, const std::string& node, std::uint64_t sequence,
                          const Open& question, RegionUse use, TimePoint now) {
  const auto refuse = [&](Error error) { port_.answer(key.first, sequence, Refused{error}); };
  const auto copied = unpack(question.data.bytes, use->memory->bytes());
  if (!copied) return refuse(copied.error());
  if (*copied != question.bytes)
    return refuse({ErrorCode::kInvalidArgument,
                   fmt::format("the question came with {} bytes of {}", *copied, question.bytes)});
  Transfer& transfer = transfers_[key];
  transfer.node = node;
  transfer.region = std::move(use);
  transfer.notify = question.notify;
  transfer.stream = question.stream;
  transfer.part = question.part;
  transfer.shadow = question.shadow;
  transfer.bytes = question.bytes;
  transfer.due = TimePoint::max();
  transfer.state = State::kDone;  // it never is open
  transfer.inlined = true;
  done(key, transfer, now);
  port_.answer(key.first, sequence, AlreadyDone{});
  last_word(key, transfer, now);
}

void Inbound::erase(std::map<Key, Transfer>::iterator transfer) {
  if (const State state = transfer->second.state; state == State::kOpen || state == State::kFencing)
    count_ended();
  free_slots(transfer->second);
  transfers_.erase(transfer);
}

std::vector<RegionKey> Inbound::hand_keys(Transfer& transfer,
                                          std::shared_ptr<Region> region) const {
  std::vector<RegionKey> keys;
  const auto exported = region->exported();
  const auto cards = static_cast<std::uint16_t>(exported.size());
  std::erase_if(transfer.handed, [&](const Handed& each) { return each.region == region; });
  Handed& handed = transfer.handed.emplace_back();
  handed.keys.resize(cards);
  for (std::uint16_t i = 0; i < cards; ++i) {
    // While a card is being rekeyed nobody can say which key is meant.
    if (!exported[i] || rekeying_.contains({region, i})) continue;
    handed.keys[i] = exported[i];
    keys.push_back({i, exported[i]->remote_base(), exported[i]->key()});
  }
  handed.region = std::move(region);
  return keys;
}

std::optional<LentStaging> Inbound::lend(Transfer& transfer, std::uint32_t slots) {
  if (!staging_ || !options_.immediate_data) return std::nullopt;
  for (const std::uint64_t offset : staging_->lend(std::min(slots, options_.pack_slots_most))) {
    if (const auto immediate = slots_.take())
      transfer.lent.push_back({*immediate, offset});
    else
      staging_->give_back(offset);
  }
  if (transfer.lent.empty()) return std::nullopt;
  return LentStaging{staging_->slot_bytes(), transfer.lent,
                     hand_keys(transfer, staging_->region())};
}

/// Why a transfer that has to be staged cannot be.
std::optional<Error> Inbound::cannot_stage(const Open& question, const Region& region,
                                           const std::vector<LinkId>& credit_links) const {
  const std::string why = question.staged
                              ? "it was asked for, or no card of the initiator's reaches its memory"
                              : fmt::format(
                                    "no card of {} reaches the memory of region '{}', which is on "
                                    "GPU {}: its provider has no FI_HMEM",
                                    options_.device, region.name, region.memory->gpu());
  if (question.direction == Direction::kRead)
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the transfer has to be staged ({}), and reads are not: let the node "
                             "that has the bytes write them",
                             why)};
  if (!staging_ || !options_.immediate_data || credit_links.empty())
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the transfer has to be staged ({}), and device {} has {}", why,
                             options_.device,
                             !staging_              ? "no staging memory: see fabric.packing, "
                                                      "fabric.staging_bytes"
                             : credit_links.empty() ? "no link to the initiator"
                                                    : "cards without immediate data")};
  return std::nullopt;
}

void Inbound::arm_slots(TransferId id, const Transfer& transfer, std::vector<LinkId> credit_links) {
  port_.command(ArmPacked{id, transfer.lent, staging_->slot_bytes(), staging_->region()->memory,
                          transfer.region->memory, std::move(credit_links)});
}

/// After a fence: nothing can arrive in the slots any more, and nothing of them is being scattered.
/// The same places, under other immediates.
std::optional<LentStaging> Inbound::lend_again(TransferId id, Transfer& transfer) {
  for (StagingSlot& slot : transfer.lent) {
    const auto immediate = slots_.take();
    if (!immediate) return std::nullopt;  // a million slots are out: the transfer ends
    slots_.give_back(std::exchange(slot.immediate, *immediate));
  }
  arm_slots(id, transfer, transfer.credit_links);
  return LentStaging{staging_->slot_bytes(), transfer.lent,
                     hand_keys(transfer, staging_->region())};
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
  if (std::exchange(transfer.state, State::kDone) != State::kDone) count_ended();
  // What was staged is visible since it was scattered.
  if (transfer.direction == Direction::kWrite && !transfer.staged && transfer.region->on_gpu() &&
      port_.make_visible)
    port_.make_visible(*transfer.region);
  if (!transfer.notify.empty())
    port_.notify({transfer.node, key.second, transfer.region->name, transfer.bytes,
                  std::move(transfer.notify), transfer.stream, transfer.part});
  let_go(transfer);
  set_due(key, transfer, now + options_.remember);
}

void Inbound::count_open() {
  if (open_++ == 0) port_.command(PeersAtWork{true});
}

void Inbound::count_ended() {
  if (--open_ == 0) port_.command(PeersAtWork{false});
}

void Inbound::let_go(Transfer& transfer) {
  transfer.region.reset();
  transfer.handed.clear();
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
  free_slots(found->second);
  port_.answer(peer, sequence, FinOk{});
  last_word(key, found->second, now);
}

/// Forgets the oldest of this peer's when there are too many. Not this one: it is the newest; nor
/// one whose data came with its question just now, for the answer may be lost.
void Inbound::last_word(const Key& key, Transfer& transfer, TimePoint now) {
  if (std::exchange(transfer.last_word, true)) return;
  auto& known = last_words_[key.first];
  known.push_back(key.second);
  while (known.size() > options_.remember_most) {
    const auto oldest = transfers_.find({key.first, known.front()});
    if (oldest != transfers_.end()) {
      const auto ended = oldest->second.due - options_.remember;
      if (oldest->second.inlined && now < ended + kRepeated) return;
      due_.erase({oldest->second.due, oldest->first});
      erase(oldest);
    }
    known.pop_front();
  }
}

/// Nothing that the initiator posted can arrive any more.
void Inbound::free_slots(Transfer& transfer) {
  if (!transfer.lent.empty()) {
    port_.command(DisarmPacked{transfer.lent, 0});
    for (const StagingSlot& slot : std::exchange(transfer.lent, {})) {
      slots_.give_back(slot.immediate);
      staging_->give_back(slot.offset);
    }
  }
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
      free_slots(transfer);
      port_.answer(peer, sequence, AlreadyDone{});
      return last_word(key, transfer, now);
    case State::kEnded:
      if (!question.final) return port_.answer(peer, sequence, Refused{cause_of(transfer)});
      port_.answer(peer, sequence, Fenced{cards_, {}});
      return last_word(key, transfer, now);
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
  // Landed in a staging slot is not landed in the region: nothing more of it may be scattered.
  if (!transfer.lent.empty()) {
    transfer.disarming = next_tag_++;
    disarming_.emplace(transfer.disarming, key);
    port_.command(DisarmPacked{transfer.lent, transfer.disarming});
  }
  if (quiet(transfer)) fence_complete(key, transfer, now);
}

void Inbound::disarmed(std::uint64_t tag, TimePoint now) {
  const auto found = disarming_.find(tag);
  if (found == disarming_.end()) return;
  const Key key = found->second;
  disarming_.erase(found);
  Transfer& transfer = transfers_.at(key);  // it stays while it is fencing
  transfer.disarming = 0;
  if (transfer.state == State::kFencing && quiet(transfer)) fence_complete(key, transfer, now);
}

void Inbound::void_key(Transfer& transfer, std::uint16_t nic) {
  for (const Handed& handed : transfer.handed) {
    if (!rekeying_.contains({handed.region, nic})) {
      if (!handed.holds_key(nic)) continue;  // void already
      rekeying_.emplace(handed.region, nic);
      port_.rekey(handed.region, nic);
    }
    transfer.rekeying.emplace(handed.region, nic);
  }
}

void Inbound::fence_complete(const Key& key, Transfer& transfer, TimePoint now) {
  // Nothing that carries the immediates can arrive; re-posted chunks carry none, or others.
  const bool goes_on = !transfer.final && !transfer.cause;
  if (!transfer.staged || !goes_on) free_slots(transfer);
  const auto sequence = std::exchange(transfer.sequence, std::nullopt);
  if (transfer.cause) {
    port_.broken(key.first, key.second, *transfer.cause);
    end(key, transfer, now);
    if (!sequence) return;
    if (!transfer.final) return port_.answer(key.first, *sequence, Refused{cause_of(transfer)});
    port_.answer(key.first, *sequence, Fenced{cards_, {}});
    return last_word(key, transfer, now);
  }
  Fenced answer{cards_, {}, std::nullopt};
  if (!transfer.staged) answer.keys = hand_keys(transfer, transfer.region.region());
  if (transfer.staged && goes_on) answer.staging = lend_again(key.second, transfer);
  if (transfer.final)
    end(key, transfer, now);
  else
    transfer.state = State::kOpen;
  if (sequence) port_.answer(key.first, *sequence, std::move(answer));
  if (transfer.final) last_word(key, transfer, now);
}

Error Inbound::cause_of(const Transfer& transfer) {
  return transfer.cause.value_or(
      Error{ErrorCode::kCancelled, "the transfer is not open at its owner any more"});
}

void Inbound::end(const Key& key, Transfer& transfer, TimePoint now) {
  if (std::exchange(transfer.state, State::kEnded) != State::kEnded) count_ended();
  let_go(transfer);
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
    free_slots(transfer);
    end(key, transfer, now);
  }
  if (transfer.state == State::kEnded) last_word(key, transfer, now);
}

void Inbound::give_up(Incarnation peer, TransferId shadow, const Error& error, TimePoint now) {
  for (auto it = transfers_.lower_bound({peer, 0});
       it != transfers_.end() && it->first.first == peer; ++it)
    if (it->second.shadow == shadow) own_fence(it->first, it->second, error, now);
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
    std::erase_if(transfer.rekeying, [&](const auto& each) {
      return each.second == nic && each.first->name == region;
    });
  complete_fences(now);
}

void Inbound::complete_fences(TimePoint now) {
  std::vector<Key> ready;
  for (const auto& [key, transfer] : transfers_)
    if (transfer.state == State::kFencing && quiet(transfer)) ready.push_back(key);
  for (const Key& key : ready) fence_complete(key, transfers_.at(key), now);
}

// -- peers, regions, time ------------------------------------------------------------------------

void Inbound::peer_down(Incarnation peer, const Error& error, TimePoint now) {
  std::vector<Key> keys;
  for (auto it = transfers_.lower_bound({peer, 0});
       it != transfers_.end() && it->first.first == peer; ++it)
    keys.push_back(it->first);
  last_words_.erase(peer);
  for (const Key& key : keys) {
    Transfer& transfer = transfers_.at(key);
    if (transfer.state == State::kDone) free_slots(transfer);
    transfer.sequence.reset();  // nobody hears the answer
    own_fence(key, transfer, error, now);
  }
}

bool Inbound::is_open_for(Incarnation peer, TransferId shadow) const {
  for (auto it = transfers_.lower_bound({peer, 0});
       it != transfers_.end() && it->first.first == peer; ++it) {
    const Transfer& transfer = it->second;
    if (transfer.shadow == shadow &&
        (transfer.state == State::kOpen || transfer.state == State::kFencing))
      return true;
  }
  return false;
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
      erase(found);
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
