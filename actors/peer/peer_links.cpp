#include "actors/peer/peer_links.hpp"

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

constexpr Milliseconds kMostBackoff{2000};
/// A link that failed this often in a row may never have been accepted by the poller: opened anew.
constexpr unsigned kFailuresBeforeReopen = 3;

}  // namespace

PeerLinks::PeerLinks(std::vector<LocalCard> local, std::vector<MemberCard> remote,
                     Milliseconds backoff, Effects effects)
    : local_(std::move(local)), backoff_(backoff), effects_(std::move(effects)) {
  for (MemberCard& card : remote) remote_.push_back({std::move(card), 0, {}});
  pairs_.resize(pair_count());
}

std::optional<LinkId> PeerLinks::control(TimePoint now) {
  for (std::size_t tried = 0; tried < pairs_.size(); ++tried) {
    if (pairs_[control_].blocked_until <= now) return open(control_);
    rotate();
  }
  return std::nullopt;
}

std::size_t PeerLinks::device_of(LinkId link) const {
  for (std::size_t i = 0; i < pairs_.size(); ++i)
    if (pairs_[i].link == link) return local_of(i).device;
  return 0;
}

void PeerLinks::rotate_from(LinkId link) {
  if (!pairs_.empty() && pairs_[control_].link == link) rotate();
}

void PeerLinks::rotate() {
  if (pairs_.size() < 2) return;
  if (!keep_open_) close_link(control_);
  control_ = (control_ + 1) % pairs_.size();
}

TimePoint PeerLinks::unblocked_at() const {
  TimePoint earliest = TimePoint::max();
  for (const Pair& pair : pairs_) earliest = std::min(earliest, pair.blocked_until);
  return earliest;
}

std::optional<PeerLinks::DataLink> PeerLinks::data(LocalCard local,
                                                   const std::string& remote_device,
                                                   std::uint16_t remote_nic, TimePoint now) {
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const LocalCard mine = local_of(i);
    const Remote& remote = remote_[remote_of(i)];
    if (mine.device != local.device || mine.nic != local.nic || remote.generation == 0 ||
        remote.card.device != remote_device || remote.card.nic != remote_nic)
      continue;
    const bool blocked = pairs_[i].blocked_until > now;
    const LinkId link = blocked && pairs_[i].link ? *pairs_[i].link : open(i);
    return DataLink{link, mine, remote_nic, pairs_[i].generation, blocked};
  }
  return std::nullopt;
}

std::vector<std::uint16_t> PeerLinks::remote_nics(const std::string& device) const {
  std::vector<std::uint16_t> nics;
  for (const Remote& remote : remote_)
    if (remote.card.device == device && remote.generation != 0) nics.push_back(remote.card.nic);
  std::sort(nics.begin(), nics.end());
  return nics;
}

void PeerLinks::learn(const std::string& device, const std::vector<InboundCard>& cards) {
  for (const InboundCard& card : cards) {
    const auto known = std::find_if(remote_.begin(), remote_.end(), [&](const Remote& remote) {
      return remote.card.device == device && remote.card.nic == card.nic;
    });
    if (known == remote_.end() || card.generation <= known->generation || card.address.empty())
      continue;
    known->generation = card.generation;
    known->inbound = card.address;
    for (std::size_t i = 0; i < pairs_.size(); ++i)
      if (&remote_[remote_of(i)] == &*known) point(i);
  }
}

bool PeerLinks::failed(LinkId link, TimePoint now) {
  const auto pair =
      std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& p) { return p.link == link; });
  if (pair == pairs_.end()) return false;
  // One fault shows as many failed operations: they count once.
  if (pair->blocked_until > now) return true;
  const bool in_a_row = pair->failures > 0 && now - pair->blocked_until < kMostBackoff;
  pair->failures = in_a_row ? pair->failures + 1 : 1;
  pair->backoff = in_a_row ? std::min(pair->backoff * 2, kMostBackoff) : backoff_;
  pair->blocked_until = now + pair->backoff;
  pair->reopen = !keep_open_ || pair->failures >= kFailuresBeforeReopen;
  return true;
}

void PeerLinks::close() {
  for (std::size_t i = 0; i < pairs_.size(); ++i) close_link(i);
}

LinkId PeerLinks::open(std::size_t i) {
  Pair& pair = pairs_[i];
  if (pair.reopen) close_link(i);
  if (pair.link) return *pair.link;
  const Remote& remote = remote_[remote_of(i)];
  pair.link = effects_.new_link();
  pair.generation = remote.generation;
  const LocalCard local = local_of(i);
  effects_.command(local.device, OpenLink{*pair.link, local.nic, remote.card.control,
                                          remote.inbound, remote.generation});
  return *pair.link;
}

void PeerLinks::close_link(std::size_t i) {
  Pair& pair = pairs_[i];
  pair.reopen = false;
  if (!pair.link) return;
  effects_.command(local_of(i).device, CloseLink{*pair.link});
  pair.link.reset();
  pair.generation = 0;
}

void PeerLinks::point(std::size_t i) {
  Pair& pair = pairs_[i];
  if (!pair.link) return;
  const Remote& remote = remote_[remote_of(i)];
  effects_.command(local_of(i).device, MoveLink{*pair.link, remote.inbound, remote.generation});
  // Writes to the old endpoint had to fail: that says nothing against the new one.
  if (pair.generation != 0) {
    pair.failures = 0;
    pair.reopen = false;
    pair.blocked_until = TimePoint::min();
  }
  pair.generation = remote.generation;
}

}  // namespace penstock
