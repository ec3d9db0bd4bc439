#include "tests/sim/world/world.hpp"

#include <fmt/ranges.h>

#include <functional>

#include "tests/sim/world/world_notes.hpp"

namespace penstock::sim {
namespace {

using namespace std::chrono_literals;

constexpr auto kForming = 400ms;   // until the nodes have met
constexpr auto kTrouble = 3000ms;  // of transfers and faults
/// Longer than any deadline, lease and memory of what was, and than members need to find back.
constexpr auto kPeace = 10500ms;
constexpr auto kLook = 50ms;
constexpr std::uint64_t kFirstAddress = std::uint64_t{1} << 40;
constexpr std::int64_t kWallClock = 1'000'000'000'000;

}  // namespace

World::World(std::uint64_t seed)
    : weather_(seed),
      network_(seed),
      wire_(network_),
      gossip_(network_, {.straggler_chance = weather_.straggler,
                         .duplicate_chance = weather_.gossip_duplicate,
                         .loss =
                             [this](std::uint32_t from, std::uint32_t to) {
                               return loss_between(from, to, weather_.gossip_loss);
                             }}),
      began_(network_.now()),
      machines_(weather_.nodes) {
  network_.apart = [this](std::uint32_t from, std::uint32_t to) { return apart(from, to); };
  wire_.loss_between = [this](std::uint32_t from, std::uint32_t to) {
    return loss_between(from, to, weather_.message_loss);
  };
  wire_.late_chance = weather_.late;
  wire_.held_chance = weather_.held;
  wire_.duplicate_chance = weather_.duplicate;
  wire_.key_guards = weather_.fence == FenceKind::kRekey;
  std::uint64_t address = kFirstAddress;
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    machines_[i].name = std::string(1, static_cast<char>('a' + i));
    machines_[i].endpoint = fmt::format("tcp://10.0.0.{}:7412", i + 1);
    for (std::size_t card = 0; card < weather_.cards[i]; ++card, address += 2)
      machines_[i].addresses.emplace_back(address, address + 1);
  }
}

World::~World() { network_.forget_everything(); }

std::string World::history() const { return fmt::format("{}", fmt::join(history_, "\n")); }

std::size_t World::any_victim() {
  std::vector<std::size_t> victims;
  for (std::size_t i = 0; i < machines_.size(); ++i)
    if (weather_.victim[i]) victims.push_back(i);
  return victims[below(victims.size())];
}

// -- nodes ---------------------------------------------------------------------------------------

Incarnation World::new_incarnation(const Machine& machine) {
  const auto ns = kWallClock + (network_.now() - began_).count() + machine.wall_clock_ns;
  // No two nodes have the same: that is left to 16 random bits where they really run.
  const auto place = static_cast<Incarnation>(&machine - machines_.data());
  return (static_cast<Incarnation>(ns) & ~Incarnation{0xffff}) | below(0x1000) << 4 | place;
}

SimMemberOptions World::options_of(std::size_t index, Incarnation incarnation) {
  const Machine& machine = machines_[index];
  SimMemberOptions options;
  SimNodeOptions& node = options.node;
  node.name = machine.name;
  node.incarnation = incarnation;
  node.clock = std::chrono::microseconds(incarnation % 86'413'000'007);  // of a day
  node.addresses = machine.addresses;
  node.cards = weather_.cards[index];
  node.on_gpu = weather_.on_gpu[index];
  node.nic.host = static_cast<std::uint32_t>(index);
  node.nic.depth_per_peer = 8;
  node.nic.again_chance = 0.05;
  node.nic.connect = some(3ms);
  node.nic.jitter = 300us;
  node.nic.bytes_per_second = weather_.warm_up ? 100e6 : 2e6;
  node.nic.failure_chance = weather_.victim[index] ? weather_.failure : 0;
  node.nic.max_chunk_bytes = weather_.warm_up ? 65536 : 1024;
  node.scratch_bytes = weather_.warm_up ? kScratchBytes : 0;
  node.poller.card_stall = 40ms;
  node.poller.card_window_bytes = 4096;
  node.poller.link_window_bytes = 2048;
  node.outbound.scheduler = {1024, 2};
  node.outbound.counted_chunks = 4;
  node.outbound.inline_bytes = 2 * Store::kPageBytes;
  node.outbound.open_per_node = 6;
  node.outbound.window_bytes = 8192;
  node.outbound.open = 1000ms;
  node.outbound.connect = 1500ms;
  node.outbound.grace_min = 10ms;
  node.outbound.grace_max = kGraceMost;
  node.outbound.fence = kFence;
  node.outbound.lease_extra = kLeaseExtra;
  node.outbound.retry_backoff = 2ms;
  node.inbound.remember = 1500ms;
  node.answers_kept = 16;
  node.inbound.grace_max = kGraceMost;
  node.inbound.fence = weather_.fence;
  Swim::Options& swim = options.swim;
  swim.seeds = seeds_of(index);
  swim.period = 50ms;
  swim.probe_timeout = 20ms;
  swim.suspicion = 250ms;
  swim.closed_grace = 200ms;
  swim.push_pull = 2500ms;
  swim.seed = below(~std::uint64_t{0});
  options.endpoint = machine.endpoint;
  options.shadows.late = kDelegationLate;
  options.shadows.stopping = kGraceMost + kFence;
  options.shadows.margin = kDelegationMargin;
  options.shadows.look_every = 100ms;
  options.first_id = (lives_.size() + 1) << 32 | 1;
  options.plan = {Store::kPageBytes * (1 + below(3)), chance(0.7)};
  return options;
}

/// What an operator writes into the configuration: two nodes that are there. Before there are any,
/// the first two.
std::vector<std::string> World::seeds_of(std::size_t index) const {
  std::vector<std::string> seeds;
  for (const Machine& machine : machines_)
    if (&machine != &machines_[index] && machine.life != nullptr && !machine.life->ended &&
        !machine.life->member->draining() && seeds.size() < 2)
      seeds.push_back(machine.endpoint);
  if (seeds.empty()) seeds = {machines_[0].endpoint, machines_[1].endpoint};
  return seeds;
}

void World::start(std::size_t index) {
  Machine& machine = machines_[index];
  machine.dark = false;
  lives_.push_back(std::make_unique<Life>());
  Life* life = lives_.back().get();
  life->machine = index;
  life->number = lives_.size();
  const Incarnation incarnation = new_incarnation(machine);
  note("{} starts as {:x}", machine.name, incarnation);
  life->member = std::make_unique<SimMember>(wire_, gossip_, options_of(index, incarnation),
                                             observer_of(life));
  machine.life = life;
  for (const char* region : {"0", "1"}) add_region(life, machine.name + region);
}

SimMemberObserver World::observer_of(Life* life) {
  SimMemberObserver observer;
  observer.node.ended = [this, life](const TransferResult& result) { ended(life, result); };
  observer.node.notified = [this, life](const Notification& word) { notified(life, word); };
  observer.node.broken = [this, life](Incarnation, TransferId id) { broken(life, id); };
  observer.node.released = [this, life](const std::string& region) { released(life, region); };
  observer.carried_out = [this, life](TransferId shadow, const Result<TransferId>& as,
                                      TimePoint deadline) {
    carried_out(life, shadow, as, deadline);
  };
  observer.broke = [this](const std::string& what) { broke("{}", what); };
  observer.changed = [this, life](const MemberChange& change) {
    note("{} hears that {} ({:x}) is {}{}: {}", machines_[life->machine].name, change.record.node,
         change.record.incarnation, name_of(change.state), change.gone ? " for good" : "",
         change.reason);
    if (change.state == MemberState::kDead && !weather_.victim[life->machine])
      check_death(*life, change);
  };
  observer.outrun = [this, life](Incarnation last) {
    if (std::exchange(life->outrun, true)) return;
    note("{} was started with a clock that is behind", machines_[life->machine].name);
    network_.after(some(100ms), [this, life, last] {
      if (life->ended) return;
      // Its operator sets the clock right.
      machines_[life->machine].wall_clock_ns +=
          static_cast<std::int64_t>(last - life->member->incarnation() + 1'000'000'000);
      end_life(life->machine, false);
      start(life->machine);
    });
  };
  observer.drained = [this, life] {
    note("{} has drained", machines_[life->machine].name);
    network_.after(20ms, [this, life] {
      if (machines_[life->machine].life != life || life->ended) return;
      end_life(life->machine, false);
      if (chance(0.5))
        network_.after(some(500ms), [this, index = life->machine] {
          if (machines_[index].life->ended) start(index);
        });
    });
  };
  return observer;
}

/// The process of a node ends; `dark`: its machine too.
void World::end_life(std::size_t index, bool dark) {
  Machine& machine = machines_[index];
  machine.dark = dark;
  machine.life->ended = true;
  machine.life->member->crash();
  initiator_ended(machine.life);
}

bool World::apart(std::uint32_t from, std::uint32_t to) const {
  if (machines_[from].dark || machines_[to].dark) return true;
  const auto found = cuts_.find({from, to});
  return found != cuts_.end() && found->second > 0;
}

double World::loss_between(std::uint32_t from, std::uint32_t to, double loss) const {
  return !calm_ && (weather_.victim[from] || weather_.victim[to]) ? loss : 0;
}

// -- time ----------------------------------------------------------------------------------------

void World::settle() {
  for (std::size_t quiet_rounds = 0; quiet_rounds < 2;) {
    std::size_t happened = 0;
    for (const Machine& machine : machines_) {
      if (machine.life == nullptr || !machine.life->member->restless()) continue;
      happened += machine.life->member->step();
    }
    quiet_rounds = happened == 0 ? quiet_rounds + 1 : 0;
  }
}

void World::run_for(Clock::duration time) {
  for (const TimePoint end = network_.now() + time; failures_.empty() && network_.now() < end;) {
    settle();
    if (!network_.advance_to_next()) network_.advance(1ms);
  }
}

void World::run() {
  const std::size_t first = machines_.size() - (weather_.late_node ? 1 : 0);
  for (std::size_t i = 0; i < first; ++i) start(i);
  if (weather_.late_node) network_.after(kForming + some(2000ms), [this, first] { start(first); });
  look();
  run_for(kForming);
  for (std::size_t i = 0; i < weather_.transfers; ++i)
    network_.after(some(kTrouble), [this] { begin(); });
  plan_faults(kTrouble);
  run_for(kTrouble);
  if (!failures_.empty()) return;
  heal();
  run_for(kPeace);
  check_memory("at the end");
  if (failures_.empty()) check_end();
}

void World::look() {
  check_memory("at a look");
  network_.after(kLook, [this] { look(); });
}

}  // namespace penstock::sim
