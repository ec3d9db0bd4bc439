#include "tests/sim/nodes/two_nodes.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace penstock::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::byte kSourcePoison{0x5a};
constexpr std::byte kDestinationPoison{0xa5};
constexpr std::size_t kB = 1;

std::byte pattern(TransferId id, std::size_t page, std::size_t at) {
  return static_cast<std::byte>(1 + (id * 31 + page * 7 + at) % 89);  // never a poison
}

std::string node_name(std::size_t side) { return side == 0 ? "a" : "b"; }

}  // namespace

TwoNodes::TwoNodes(std::uint64_t seed, Weather weather)
    : weather_(weather), network_(seed), wire_(network_), began_(network_.now()) {
  wire_.message_loss = weather_.message_loss;
  wire_.late_chance = weather_.late_chance;
  wire_.key_guards = weather_.fence == FenceKind::kRekey;
  start(0, 1000);
  start(1, 2000);
  nodes_[0]->meet(nodes_[1]->record());
  nodes_[1]->meet(nodes_[0]->record());
}

TwoNodes::~TwoNodes() = default;

template <class... Args>
void TwoNodes::note(fmt::format_string<Args...> text, Args&&... args) {
  const auto us =
      std::chrono::duration_cast<std::chrono::microseconds>(network_.now() - began_).count();
  history_.push_back(
      fmt::format("{:>10} us  {}", us, fmt::format(text, std::forward<Args>(args)...)));
}

template <class... Args>
void TwoNodes::broke(fmt::format_string<Args...> text, Args&&... args) {
  failures_.push_back(fmt::format(text, std::forward<Args>(args)...));
  note("BROKEN: {}", failures_.back());
}

std::string TwoNodes::history() const { return fmt::format("{}", fmt::join(history_, "\n")); }

void TwoNodes::start(std::size_t side, Incarnation incarnation) {
  SimNodeOptions options;
  options.name = node_name(side);
  options.incarnation = incarnation;
  options.nic.depth_per_peer = 8;
  options.nic.again_chance = 0.05;
  options.nic.connect = some(3000);
  options.nic.jitter = 300us;
  options.nic.bytes_per_second = 1e6;
  options.nic.failure_chance = weather_.failure_chance;
  options.nic.max_chunk_bytes = 1024;
  options.cards = weather_.cards[side];
  options.on_gpu = weather_.on_gpu[side];
  options.mover.failure_chance = weather_.move_failure_chance;
  options.poller.card_stall = 40ms;
  options.poller.card_window_bytes = 4096;
  options.poller.link_window_bytes = 2048;
  options.outbound.scheduler = {1024, 2};
  options.outbound.counted_chunks = 4;
  options.outbound.inline_bytes = 2 * kPageBytes;
  options.outbound.open_per_node = 6;
  options.outbound.window_bytes = 8192;
  options.outbound.open = 1000ms;
  options.outbound.connect = 2000ms;
  options.outbound.grace_min = 10ms;
  options.outbound.grace_max = 60ms;
  options.outbound.fence = 1000ms;
  options.outbound.lease_extra = 300ms;
  options.outbound.retry_backoff = 2ms;
  options.inbound.remember = 5000ms;
  options.inbound.grace_max = 60ms;
  options.inbound.fence = weather_.fence;

  SimNodeObserver observer;
  observer.ended = [this](const TransferResult& result) { ended(moved_.at(result.id), result); };
  observer.notified = [this](const Notification& notification) {
    Moved& moved = moved_.at(notification.transfer);
    note("{} is notified", moved.id);
    if (moved.notified || !moved.notify) broke("{} notified twice, or unasked", moved.id);
    moved.notified = true;
    for (std::size_t i = 0; moved.write && i < moved.destination_pages.size(); ++i)
      if (!right(moved, i)) broke("{} notified before its bytes were there", moved.id);
    poison_remote(moved, "the owner was notified");
  };
  observer.broken = [this](Incarnation, TransferId id) {
    note("{} was fenced by its owner", id);
    poison_remote(moved_.at(id), "the owner fenced it");
  };
  observer.released = [this, side](const std::string& name) {
    note("{} is released", name);
    std::vector<std::size_t> every(kPages);
    for (std::size_t i = 0; i < kPages; ++i) every[i] = i;
    poison(*stores_.at({side, name}), every, kDestinationPoison, "its region was released");
    stores_.erase({side, name});
    add_region(side, name);
  };
  all_nodes_.push_back(std::make_unique<SimNode>(wire_, options, observer));
  nodes_[side] = all_nodes_.back().get();
  for (const char* region : {"0", "1"}) add_region(side, node_name(side) + region);
}

void TwoNodes::add_region(std::size_t side, const std::string& name) {
  auto store = std::make_shared<Store>();
  store->name = name;
  stores_[{side, name}] = store;
  all_stores_.push_back(store);
  nodes_[side]->add_region(name, store->bytes);
}

// -- what happens --------------------------------------------------------------------------------

void TwoNodes::begin(std::size_t side) {
  SimNode& node = *nodes_[side];
  const bool copy = network_.chance(0.05);
  const std::size_t other = copy ? side : 1 - side;
  const std::string local_name = node_name(side) + (copy || network_.chance(0.5) ? "0" : "1");
  const std::string remote_name = node_name(other) + (copy || network_.chance(0.5) ? "1" : "0");
  const auto local_store = stores_.at({side, local_name});
  const auto remote_store = stores_.at({other, remote_name});
  auto local = node.regions().use(local_name);
  if (!local) return;

  Moved moved;
  moved.id = next_id_++;
  moved.side = side;
  moved.initiator = &node;
  const bool staged = !copy && (weather_.on_gpu[0] || weather_.on_gpu[1]);
  moved.write = network_.chance(0.7) || staged;
  moved.notify = network_.chance(0.3);
  moved.source = moved.write ? local_store : remote_store;
  moved.destination = moved.write ? remote_store : local_store;
  take_pages(moved, 1 + below(weather_.most_pages));
  if (moved.source_pages.empty()) return;
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < moved.source_pages.size(); ++i)
    ranges.push_back(
        {moved.source_pages[i] * kPageBytes, moved.destination_pages[i] * kPageBytes, kPageBytes});
  Admitted admitted;
  admitted.id = moved.id;
  admitted.node = node_name(other);
  admitted.remote_region = remote_name;
  for (const auto& region : nodes_[other]->regions().list())
    if (region->name == remote_name) admitted.remote_epoch = region->epoch;
  admitted.direction = moved.write ? Direction::kWrite : Direction::kRead;
  admitted.plan = *Plan::make(Ranges{BlobList<Range>::of(ranges)},
                              {kPageBytes * (1 + below(3)), network_.chance(0.5)});
  admitted.local = std::make_shared<RegionUse>(std::move(*local));
  if (copy) {
    auto target = node.regions().use(remote_name);
    if (!target) return;
    admitted.copy_target = std::make_shared<RegionUse>(std::move(*target));
  }
  admitted.lane = network_.chance(0.3) ? Lane::kUrgent : Lane::kBulk;
  admitted.packing = static_cast<PackingMode>(below(3));
  if (staged && network_.chance(0.3)) admitted.path = PathChoice::kStaged;
  admitted.weight = static_cast<std::uint32_t>(1 + below(5));
  if (moved.notify) admitted.notify = "word";
  const bool hurried = network_.chance(weather_.short_deadline_chance);
  admitted.deadline = network_.now() + (hurried ? some(8000) : 1500ms + some(500000));
  note("{} {} {} {} of {} pages, {} chunks{}{}", moved.id, local_name,
       moved.write ? "writes to" : "reads from", remote_name, ranges.size(),
       admitted.plan->chunks(), moved.notify ? ", notify" : "", hurried ? ", hurried" : "");
  const TransferId id = moved.id;
  moved_.emplace(id, std::move(moved));
  node.admit(std::move(admitted));
  if (network_.chance(weather_.cancel_chance))
    network_.after(some(6000), [this, id, &node] {
      note("{} is cancelled", id);
      node.cancel(id);
    });
}

void TwoNodes::take_pages(Moved& moved, std::size_t count) {
  Store& from = *moved.source;
  Store& to = *moved.destination;
  for (std::size_t i = 0; i < count && from.next_page < kPages && to.next_page < kPages; ++i) {
    moved.source_pages.push_back(from.next_page++);
    moved.destination_pages.push_back(to.next_page++);
    for (std::size_t at = 0; at < kPageBytes; ++at)
      from.bytes[moved.source_pages.back() * kPageBytes + at] = pattern(moved.id, i, at);
  }
}

void TwoNodes::plan_faults() {
  const auto any_card = [this]() -> LateNic& {
    SimNode& node = *nodes_[below(2)];
    return node.nic(below(node.cards()));
  };
  if (weather_.card_faults) {
    for (int i = 0; i < 3; ++i)
      network_.after(some(80000), [this, any_card] {
        note("{}: the next operations fail", any_card().info().name);
        any_card().card().fail_next(1 + below(6));
      });
    for (int i = 0; i < 2; ++i)
      network_.after(some(80000), [this, any_card] {
        LateNic& nic = any_card();
        note("{} stalls", nic.info().name);
        nic.card().stall(true);
        network_.after(some(network_.chance(0.3) ? 250000 : 20000), [this, &nic] {
          note("{} goes on", nic.info().name);
          nic.card().stall(false);
        });
      });
    if (network_.chance(0.4))
      network_.after(some(100000), [this, any_card] {
        LateNic& nic = any_card();
        note("{} dies", nic.info().name);
        nic.die();
      });
  }
  for (std::size_t i = 0; i < weather_.outages; ++i)
    network_.after(some(100000), [this, any_card] { take_out(any_card()); });
  if (weather_.releases)
    for (int i = 0; i < 3; ++i)
      network_.after(some(100000), [this] {
        const std::size_t side = below(2);
        const std::string name = node_name(side) + std::to_string(below(2));
        note("{} is taken away", name);
        nodes_[side]->release_by_force(name);
      });
  if (weather_.partings)
    for (int i = 0; i < 2; ++i)
      network_.after(some(100000), [this] {
        const std::size_t side = below(2);
        SimNode* node = nodes_[side];
        const MemberRecord other = nodes_[1 - side]->record();
        note("{} thinks {} dead", node_name(side), other.node);
        node->part(other.incarnation, {ErrorCode::kPeerLeft, "silent"}, false);
        network_.after(some(100000), [this, node, other] {
          if (node->crashed() || node->knows(other.incarnation) ||
              nodes_[other.node == "b"]->record().incarnation != other.incarnation)
            return;
          note("{} is met again", other.node);
          node->meet(other);
        });
      });
  if (weather_.crash)
    network_.after(some(100000), [this] {
      note("b crashes");
      SimNode* old = nodes_[kB];
      const Incarnation was = old->record().incarnation;
      old->crash();
      std::erase_if(stores_, [](const auto& each) { return each.first.first == kB; });
      start(kB, was + 1);
      nodes_[kB]->meet(nodes_[0]->record());
      network_.after(some(100000), [this, was] {
        note("a learns that b restarted");
        nodes_[0]->part(was, {ErrorCode::kStalePeer, "restarted"}, true);
        nodes_[0]->meet(nodes_[kB]->record());
      });
    });
}

/// The card goes dark or dies, and is back after a while.
void TwoNodes::take_out(LateNic& nic) {
  const bool dark = network_.chance(0.6);
  note("{} {}", nic.info().name, dark ? "goes dark" : "is out");
  if (dark)
    nic.card().stall(true);
  else
    nic.die();
  if (weather_.for_good) return;
  network_.after(some(800000), [this, &nic, dark] {
    note("{} is back", nic.info().name);
    if (dark)
      nic.card().stall(false);
    else
      nic.revive();
  });
}

// -- what has to hold ----------------------------------------------------------------------------

bool TwoNodes::right(const Moved& moved, std::size_t page) const {
  // Handed out meanwhile: check_poison looks after it.
  if (moved.destination->poison.contains(moved.destination_pages[page])) return true;
  const std::byte* bytes =
      moved.destination->bytes.data() + moved.destination_pages[page] * kPageBytes;
  for (std::size_t at = 0; at < kPageBytes; ++at)
    if (bytes[at] != pattern(moved.id, page, at)) return false;
  return true;
}

void TwoNodes::poison(Store& store, const std::vector<std::size_t>& pages, std::byte value,
                      const std::string& why) {
  for (const std::size_t page : pages) {
    std::memset(store.bytes.data() + page * kPageBytes, static_cast<int>(value), kPageBytes);
    store.poison[page] = {value, why};
  }
}

void TwoNodes::poison_remote(Moved& moved, const std::string& why) {
  moved.handed_out = true;
  const std::string reason = fmt::format("{} of transfer {}", why, moved.id);
  if (moved.write)
    poison(*moved.destination, moved.destination_pages, kDestinationPoison, reason);
  else
    poison(*moved.source, moved.source_pages, kSourcePoison, reason);
}

void TwoNodes::check_poison(const std::string& when) {
  for (const auto& store : all_stores_)
    for (auto it = store->poison.begin(); it != store->poison.end();) {
      const auto& [value, why] = it->second;
      const std::byte* bytes = store->bytes.data() + it->first * kPageBytes;
      const bool whole = std::all_of(bytes, bytes + kPageBytes,
                                     [value = value](std::byte b) { return b == value; });
      if (whole) {
        ++it;
        continue;
      }
      broke("page {} of {} changed ({}) after {}", it->first, store->name, when, why);
      it = store->poison.erase(it);
    }
}

void TwoNodes::check_landed(const Moved& moved, const TransferResult& result) {
  if (result.remote != TransferResult::Remote::kQuiet) return;
  for (std::size_t i = 0; i + 2 < result.landed.size(); i += 3)
    for (std::size_t page = 0; page < moved.destination_pages.size(); ++page) {
      const std::uint64_t at = moved.destination_pages[page] * kPageBytes;
      const bool inside = result.landed[i + 1] <= at &&
                          at + kPageBytes <= result.landed[i + 1] + result.landed[i + 2];
      if (inside && !right(moved, page)) broke("{} says that page {} landed", moved.id, page);
    }
}

void TwoNodes::ended(Moved& moved, const TransferResult& result) {
  const bool quiet = result.remote == TransferResult::Remote::kQuiet;
  note("{} ends: {}{} {}", moved.id, name_of(result.state), quiet ? "" : ", remote unreachable",
       result.error.message);
  if (moved.ended) return broke("{} ended twice", moved.id);
  moved.ended = true;
  ++ended_;
  check_poison("seen when a transfer ended");
  if (result.state == TransferResult::State::kDone) {
    ++done_;
    for (std::size_t i = 0; i < moved.destination_pages.size(); ++i)
      if (!right(moved, i)) broke("{} is done, but page {} is wrong", moved.id, i);
    if (moved.notify && !moved.notified)
      broke("{} is done, but its owner was not notified", moved.id);
  } else {
    check_landed(moved, result);
  }
  const std::string why = fmt::format("the terminal event of {}", moved.id);
  if (moved.write)
    poison(*moved.source, moved.source_pages, kSourcePoison, why);
  else
    poison(*moved.destination, moved.destination_pages, kDestinationPoison, why);
  if (quiet && !moved.handed_out) poison_remote(moved, "terminal event with remote quiet");
}

void TwoNodes::settle() {
  for (std::size_t quiet_rounds = 0; quiet_rounds < 2;) {
    const std::size_t happened = nodes_[0]->step() + nodes_[1]->step();
    quiet_rounds = happened == 0 ? quiet_rounds + 1 : 0;
  }
}

void TwoNodes::run() {
  for (std::size_t i = 0; i < weather_.transfers; ++i)
    network_.after(some(100000), [this] { begin(below(2)); });
  plan_faults();
  const TimePoint end = network_.now() + 6s;
  do settle();
  while (network_.now() < end && failures_.empty() && network_.advance_to_next());
  // Later than anything is remembered, and than any late byte.
  for (const TimePoint later = network_.now() + 8s; failures_.empty() && network_.now() < later;) {
    if (!network_.advance_to_next()) network_.advance(8s);
    settle();
  }
  check_poison("seen at the end");
  if (failures_.empty()) check_end();
}

void TwoNodes::check_end() {
  for (const auto& [id, moved] : moved_)
    if (!moved.ended && !moved.initiator->crashed()) broke("{} never ended", id);
  for (SimNode* node : nodes_) {
    const std::string name = node->record().node;
    if (node->outbound().size() != 0) broke("{}: outbound holds transfers", name);
    if (node->inbound().open_count() != 0) broke("{}: inbound transfers are open", name);
    if (node->inbound().known_count() != 0) broke("{}: inbound transfers are remembered", name);
    for (const auto& region : node->regions().list())
      if (region->uses != 0) broke("{}: {} uses of {}", name, region->uses.load(), region->name);
    for (std::size_t card = 0; !weather_.for_good && card < node->cards(); ++card)
      if (weather_.all_done && !node->health(card).up())
        broke("{}: card {} never came back", name, card);
  }
  if (weather_.all_done && done_ != ended_) broke("{} of {} are done", done_, ended_);
}

}  // namespace penstock::sim
