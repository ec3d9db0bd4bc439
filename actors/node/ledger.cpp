#include "actors/node/ledger.hpp"

namespace penstock {

TransferId Ledger::add(ClientId client, std::size_t device, std::string who) {
  const TransferId id = next_id_++;
  ++in_flight_of_[owner_of(client, who)];
  entries_.emplace_hint(entries_.end(), id,
                        Entry{std::move(client), std::move(who), device, std::nullopt});
  ++in_flight_;
  ++totals_.accepted;
  return id;
}

bool Ledger::end(TransferResult result, TimePoint now) {
  auto found = entries_.find(result.id);
  if (found == entries_.end() || found->second.result) return false;
  switch (result.state) {
    case TransferResult::State::kDone:
      ++totals_.done;
      break;
    case TransferResult::State::kFailed:
      ++totals_.failed;
      break;
    case TransferResult::State::kCancelled:
      ++totals_.cancelled;
      break;
    case TransferResult::State::kExpired:
      ++totals_.expired;
      break;
  }
  ended_.emplace_back(now, result.id);
  found->second.result = std::move(result);
  --in_flight_;
  const auto mine = in_flight_of_.find(owner_of(found->second.client, found->second.who));
  if (--mine->second == 0) in_flight_of_.erase(mine);
  forget(now);
  return true;
}

const Ledger::Entry* Ledger::find(TransferId id) const {
  auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<TransferId> Ledger::newest(std::size_t limit) const {
  std::vector<TransferId> ids;
  for (auto it = entries_.rbegin(); it != entries_.rend() && ids.size() < limit; ++it)
    ids.push_back(it->first);
  return ids;
}

std::vector<TransferId> Ledger::newest_ended(std::size_t limit) const {
  std::vector<TransferId> ids;
  for (auto it = ended_.rbegin(); it != ended_.rend() && ids.size() < limit; ++it)
    ids.push_back(it->second);
  return ids;
}

std::vector<TransferId> Ledger::ids_of_key(const std::string& key) const {
  auto found = keys_.find(key);
  return found == keys_.end() ? std::vector<TransferId>{} : found->second.ids;
}

void Ledger::set_key(const std::string& key, std::vector<TransferId> ids) {
  if (ids.empty()) return;
  for (TransferId id : ids) key_of_.emplace(id, key);
  const std::size_t kept = ids.size();
  keys_.emplace(key, Key{std::move(ids), kept});
}

void Ledger::forget(TimePoint now) {
  while (!ended_.empty() &&
         (ended_.size() > options_.keep_most || ended_.front().first + options_.keep < now)) {
    erase(ended_.front().second);
    ended_.pop_front();
  }
}

void Ledger::erase(TransferId id) {
  if (auto key = key_of_.find(id); key != key_of_.end()) {
    auto of_all = keys_.find(key->second);
    if (--of_all->second.kept == 0) keys_.erase(of_all);
    key_of_.erase(key);
  }
  entries_.erase(id);
}

}  // namespace penstock
