#include "actors/peer/peer_links.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr Milliseconds kMostBackoff{2000};
/// A link that failed this often in a row may never have been accepted by the poller: opened anew.
constexpr unsigned kFailuresBeforeReopen = 3;
/// So many probes of a card without an answer, and it is said to be out.
constexpr unsigned kProbesBeforeOut = 2;

}  // namespace

PeerLinks::PeerLinks(std::vector<LocalCard> local, std::vector<MemberCard> remote,
                     Milliseconds backoff, Effects effects)
    : local_(std::move(local)),
      card_up_(local_.size(), true),
      backoff_(backoff),
      effects_(std::move(effects)) {
  for (MemberCard& card : remote) remote_.push_back({std::move(card), 0, {}});
  pairs_.resize(pair_count());
}

// -- control -------------------------------------------------------------------------------------

std::optional<LinkId> PeerLinks::control(TimePoint now) {
  for (std::size_t tried = 0; tried < pairs_.size(); ++tried) {
    if (!pairs_[control_].out) return open(control_);
    rotate();
  }
  for (std::size_t tried = 0; tried < pairs_.size(); ++tried) {
    if (pairs_[control_].probe_at <= now) return open(control_);
    rotate();
  }
  return std::nullopt;
}

std::size_t PeerLinks::device_of(LinkId link) const {
  const auto pair = pair_of_link(link);
  return pair ? local_of(*pair).device : 0;
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
  for (const Pair& pair : pairs_) earliest = std::min(earliest, pair.probe_at);
  return earliest;
}

std::optional<LinkId> PeerLinks::between(LocalCard card, const std::string& remote_device,
                                         std::uint16_t remote_nic) {
  const auto local = place_of(card);
  const auto remote = std::find_if(remote_.begin(), remote_.end(), [&](const Remote& each) {
    return each.card.device == remote_device && each.card.nic == remote_nic;
  });
  if (!local || remote == remote_.end()) return std::nullopt;
  return open(pair_of(*local, static_cast<std::size_t>(remote - remote_.begin())));
}

// -- data ----------------------------------------------------------------------------------------

std::vector<PeerLinks::DataLink> PeerLinks::rails(std::size_t device,
                                                  const std::string& remote_device) {
  const Block block = block_of(device, remote_device);
  const std::size_t ours = block.ours.size();
  const std::size_t theirs = block.theirs.size();
  if (ours == 0 || theirs == 0) return {};
  const auto pair_at = [&](Rail rail) {
    return pair_of(block.ours[rail.first], block.theirs[rail.second]);
  };
  // Partners are taken on trust until they fail; others have to show first that they work.
  auto rails = pair_rails(ours, theirs, [&](Rail rail) {
    const std::size_t pair = pair_at(rail);
    return works(pair) && (pairs_[pair].proven || are_partners(ours, theirs, rail));
  });
  if (rails.empty())
    rails = pair_rails(ours, theirs, [&](Rail rail) { return are_partners(ours, theirs, rail); });
  std::vector<DataLink> links;
  for (const Rail& rail : rails) {
    const std::size_t pair = pair_at(rail);
    // One that is out is opened anew by its probes only.
    const LinkId link = pairs_[pair].out && pairs_[pair].link ? *pairs_[pair].link : open(pair);
    pairs_[pair].used = true;
    links.push_back(
        {link, local_of(pair), remote_[remote_of(pair)].card.nic, pairs_[pair].generation});
  }
  return links;
}

// -- facts ---------------------------------------------------------------------------------------

void PeerLinks::learn(const std::string& device, const std::vector<InboundCard>& cards,
                      TimePoint now) {
  for (const InboundCard& card : cards) {
    const auto known = std::find_if(remote_.begin(), remote_.end(), [&](const Remote& remote) {
      return remote.card.device == device && remote.card.nic == card.nic;
    });
    if (known == remote_.end() || card.generation <= known->generation || card.address.empty())
      continue;
    known->generation = card.generation;
    known->inbound = card.address;
    for (std::size_t i = 0; i < pairs_.size(); ++i)
      if (&remote_[remote_of(i)] == &*known) point(i, now);
  }
}

bool PeerLinks::failed(LinkId link, TimePoint now) {
  const auto index = pair_of_link(link);
  if (!index) return false;
  Pair& pair = pairs_[*index];
  // One fault shows as many failed operations: they count once, and so does each probe.
  if (pair.out && !keep_open_ && pair.probe_at > now) return true;
  if (pair.out && keep_open_ && std::exchange(pair.failed_since_probe, true)) return true;
  const bool in_a_row = pair.out || (pair.back_at && now - *pair.back_at < kMostBackoff);
  pair.failures = in_a_row ? pair.failures + 1 : 1;
  pair.reopen = !keep_open_ || pair.failures >= kFailuresBeforeReopen;
  if (pair.out && keep_open_) return true;  // the next probe is planned
  pair.backoff = in_a_row ? std::min(pair.backoff * 2, kMostBackoff) : backoff_;
  pair.out = true;
  pair.failed_since_probe = true;
  pair.proven = false;
  pair.unanswered = 0;
  pair.probe_at = now + pair.backoff;
  pair.wait = std::min(pair.backoff * 2, kMostBackoff);
  if (keep_open_) probe_replacements(*index, now);
  return true;
}

void PeerLinks::answered(std::size_t index, TimePoint now) {
  Pair& pair = pairs_[index];
  if (!pair.link) return;
  const bool news = pair.out || !pair.proven;
  if (pair.out) pair.back_at = now;
  pair.out = false;
  pair.proven = true;
  pair.unanswered = 0;
  pair.probe_at = TimePoint::max();
  if (!news) return;
  returned(index);
  const Block block = block_around(index);
  for (const std::size_t local : block.ours)
    for (const std::size_t remote : block.theirs)
      if (pairs_[pair_of(local, remote)].out) return;
  // Nothing has to be replaced any more.
  for (const std::size_t local : block.ours)
    for (const std::size_t remote : block.theirs)
      pairs_[pair_of(local, remote)].probe_at = TimePoint::max();
}

void PeerLinks::card_is_up(LocalCard card, bool up) {
  const auto local = place_of(card);
  if (!local || card_up_[*local] == up) return;
  card_up_[*local] = up;
  if (!up) return;
  for (std::size_t remote = 0; remote < remote_.size(); ++remote) returned(pair_of(*local, remote));
}

void PeerLinks::close() {
  for (std::size_t i = 0; i < pairs_.size(); ++i) close_link(i);
}

// -- probes --------------------------------------------------------------------------------------

/// Pairs that share a card with one that is out may take its place once they have been answered.
void PeerLinks::probe_replacements(std::size_t index, TimePoint now) {
  const Block block = block_around(index);
  for (const std::size_t local : block.ours)
    for (const std::size_t remote : block.theirs) {
      const std::size_t other = pair_of(local, remote);
      Pair& pair = pairs_[other];
      const bool shares = local == index % local_.size() || remote == remote_of(index);
      if (other == index || !shares || pair.out || pair.proven || pair.used) continue;
      pair.probe_at = std::min(pair.probe_at, now);
      pair.wait = backoff_;
    }
}

std::vector<PeerLinks::Way> PeerLinks::due_probes(TimePoint now) {
  std::vector<Way> due;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    Pair& pair = pairs_[i];
    if (pair.probe_at > now) continue;
    ++pair.unanswered;
    pair.failed_since_probe = false;
    pair.probe_at = now + std::max(pair.wait, backoff_);
    pair.wait = std::min(std::max(pair.wait, backoff_) * 2, kMostBackoff);
    due.push_back({i, open(i)});
  }
  return due;
}

TimePoint PeerLinks::next_probe() const {
  TimePoint next = TimePoint::max();
  for (const Pair& pair : pairs_) next = std::min(next, pair.probe_at);
  return next;
}

std::vector<PeerLinks::Way> PeerLinks::witnesses(LinkId link) {
  const auto index = pair_of_link(link);
  if (!index) return {};
  // One that shares neither card with it, one that shares the peer's, one that shares ours.
  std::vector<std::size_t> kinds[3];
  const Block block = block_around(*index);
  for (const std::size_t local : block.ours)
    for (const std::size_t remote : block.theirs) {
      const bool ours = local == *index % local_.size();
      const bool theirs = remote == remote_of(*index);
      if ((ours && theirs) || pairs_[pair_of(local, remote)].out) continue;
      kinds[theirs ? 1 : ours ? 2 : 0].push_back(pair_of(local, remote));
    }
  std::vector<Way> ways;
  for (const auto& kind : kinds)
    if (!kind.empty()) ways.push_back({kind[turn_ % kind.size()], open(kind[turn_ % kind.size()])});
  ++turn_;
  return ways;
}

Hello::Way PeerLinks::way_of(std::size_t pair) const {
  const MemberCard& remote = remote_[remote_of(pair)].card;
  return {"", local_of(pair).nic, remote.device, remote.nic};
}

CardView PeerLinks::view_of(LocalCard card) const {
  bool silent = false;
  bool others_work = false;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const Pair& pair = pairs_[i];
    const LocalCard local = local_of(i);
    const bool its_own = local.device == card.device && local.nic == card.nic;
    const bool good = !pair.out && (pair.used || pair.proven);
    if (its_own && good) return CardView::kWorks;
    silent |= its_own && pair.out && pair.unanswered >= kProbesBeforeOut;
    others_work |= !its_own && good;
  }
  return silent && others_work ? CardView::kOut : CardView::kUnknown;
}

// -- pairs ---------------------------------------------------------------------------------------

std::size_t PeerLinks::pair_of(std::size_t local, std::size_t remote) const {
  const std::size_t distance = (remote + remote_.size() - local % remote_.size()) % remote_.size();
  return local + local_.size() * distance;
}

std::optional<std::size_t> PeerLinks::pair_of_link(LinkId link) const {
  for (std::size_t i = 0; i < pairs_.size(); ++i)
    if (pairs_[i].link == link) return i;
  return std::nullopt;
}

std::optional<std::size_t> PeerLinks::place_of(LocalCard card) const {
  for (std::size_t i = 0; i < local_.size(); ++i)
    if (local_[i].device == card.device && local_[i].nic == card.nic) return i;
  return std::nullopt;
}

PeerLinks::Block PeerLinks::block_of(std::size_t device, const std::string& remote_device) const {
  Block block;
  for (std::size_t i = 0; i < local_.size(); ++i)
    if (local_[i].device == device) block.ours.push_back(i);
  for (std::size_t i = 0; i < remote_.size(); ++i)
    if (remote_[i].card.device == remote_device && remote_[i].generation != 0)
      block.theirs.push_back(i);
  std::sort(block.theirs.begin(), block.theirs.end(), [&](std::size_t a, std::size_t b) {
    return remote_[a].card.nic < remote_[b].card.nic;
  });
  return block;
}

PeerLinks::Block PeerLinks::block_around(std::size_t pair) const {
  return block_of(local_of(pair).device, remote_[remote_of(pair)].card.device);
}

void PeerLinks::returned(std::size_t pair) {
  returns_.emplace(local_of(pair).device, remote_[remote_of(pair)].card.device);
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

void PeerLinks::point(std::size_t i, TimePoint now) {
  Pair& pair = pairs_[i];
  if (!pair.link) return;
  const Remote& remote = remote_[remote_of(i)];
  effects_.command(local_of(i).device, MoveLink{*pair.link, remote.inbound, remote.generation});
  // It may have failed only because its target moved: no need to wait before it is asked.
  if (pair.generation != 0 && pair.out) {
    pair.failures = 0;
    pair.reopen = false;
    pair.probe_at = now;
  }
  pair.generation = remote.generation;
}

}  // namespace penstock
