// What goes wrong, and its end.
#include "tests/sim/world/world_notes.hpp"

namespace penstock::sim {
namespace {

using namespace std::chrono_literals;

/// A release, and a drain, is over by then: whatever uses the region has a deadline.
constexpr auto kReleaseMost = 2500ms;
constexpr auto kDrainMost = 6000ms;

}  // namespace

void World::plan_faults(Clock::duration time) {
  const auto plan = [&](std::size_t count, void (World::*fault)(std::size_t), bool anybody) {
    for (std::size_t i = 0; i < count; ++i)
      network_.after(some(time), [this, fault, anybody] {
        const std::size_t machine = anybody ? any_machine() : any_victim();
        const Life* life = machines_[machine].life;
        if (!calm_ && life != nullptr && !life->ended) (this->*fault)(machine);
      });
  };
  plan(weather_.card_faults, &World::card_fault, false);
  plan(weather_.crashes, &World::crash, false);
  plan(weather_.drains, &World::drain, false);
  plan(weather_.cuts, &World::cut, false);
  plan(weather_.pauses, &World::pause, false);
  plan(weather_.releases, &World::release, false);
  plan(weather_.clock_jumps, &World::jump, false);
  plan(weather_.garbage, &World::send_garbage, true);
}

void World::card_fault(std::size_t index) {
  Life* life = machines_[index].life;
  LateNic& nic = life->member->node().nic(below(life->member->node().cards()));
  const std::string& name = nic.info().name;
  const auto lasts = chance(0.3) ? some(900ms) : some(60ms);
  const auto later = [&](auto end) {
    network_.after(lasts, [this, life, &nic, end] {
      if (life->ended) return;
      note("{} is well again", nic.info().name);
      end(nic);
    });
  };
  switch (below(6)) {
    case 0:
      note("{}: the next operations fail", name);
      return nic.card().fail_next(1 + below(6));
    case 1:
      note("{} stands still", name);
      nic.card().stall(true);
      return later([](LateNic& each) { each.card().stall(false); });
    case 2:
      note("{} dies", name);
      nic.die();
      return later([](LateNic& each) { each.revive(); });
    case 3: {
      note("{} is slow", name);
      const double was = nic.card().options().bytes_per_second;
      nic.card().options().bytes_per_second = was / 50;
      return later([was](LateNic& each) { each.card().options().bytes_per_second = was; });
    }
    case 4:
      note("{} refuses what is posted", name);
      nic.card().refuse_posts(true);
      return later([](LateNic& each) { each.card().refuse_posts(false); });
    default:
      note("{} fails, and does not open again", name);
      nic.card().fail_next(1 + below(6));
      nic.card().fail_reopen(true);
      return later([](LateNic& each) { each.card().fail_reopen(false); });
  }
}

void World::crash(std::size_t index) {
  const bool dark = chance(0.5);
  note("{} {}", machines_[index].name, dark ? "loses its power" : "crashes");
  end_life(index, dark);
  if (chance(0.2)) return;  // stays away
  network_.after(chance(0.4) ? some(5ms) : some(1500ms), [this, index] {
    if (machines_[index].life->ended) start(index);
  });
}

void World::drain(std::size_t index) {
  Life* life = machines_[index].life;
  const std::size_t by = any_machine();
  Life* asker = machines_[by].life;
  const bool asked = by != index && asker != nullptr && !asker->ended && chance(0.5) &&
                     asker->member->ask_to_drain(machines_[index].name);
  note("{} is to drain{}", machines_[index].name, asked ? ", says " + machines_[by].name : "");
  if (asked) return;  // it may not be heard
  life->member->drain();
  network_.after(kDrainMost, [this, life] {
    if (!life->ended && !life->stood_still)
      broke("{} does not end to drain", machines_[life->machine].name);
  });
}

/// Between it and one other, or all others; in one direction or both.
void World::cut(std::size_t index) {
  const bool all = chance(0.5);
  const std::size_t one = any_machine();
  const bool in = chance(0.8);
  const bool out = !in || chance(0.8);
  const auto lasts = some(chance(0.5) ? 2000ms : 4000ms);
  note("{} is cut off from {} ({}{}) for {} ms", machines_[index].name,
       all ? "everybody" : machines_[one].name, in ? "in" : "", out ? "out" : "", lasts / 1ms);
  for (std::size_t other = 0; other < machines_.size(); ++other) {
    if (other == index || !(all || other == one)) continue;
    const auto from = static_cast<std::uint32_t>(index);
    const auto to = static_cast<std::uint32_t>(other);
    if (out) ++cuts_[{from, to}];
    if (in) ++cuts_[{to, from}];
    network_.after(lasts, [this, from, to, in, out] {
      if (calm_) return;
      if (out) --cuts_[{from, to}];
      if (in) --cuts_[{to, from}];
    });
  }
}

void World::pause(std::size_t index) {
  Life* life = machines_[index].life;
  if (life->paused) return;
  note("{} stands still", machines_[index].name);
  life->paused = life->stood_still = true;
  life->member->stand_still(true);
  network_.after(some(1500ms), [this, life] { go_on(*life); });
}

void World::go_on(Life& life) {
  if (!std::exchange(life.paused, false) || life.ended) return;
  note("{} goes on", machines_[life.machine].name);
  life.member->stand_still(false);
}

void World::release(std::size_t index) {
  Life* life = machines_[index].life;
  const std::string region = machines_[index].name + std::to_string(below(2));
  const auto found = life->stores.find(region);
  if (found == life->stores.end()) return;
  note("{} is taken away", region);
  const std::weak_ptr was = found->second;  // released() erases it, at once when nothing uses it
  life->member->node().release_by_force(region);
  network_.after(kReleaseMost, [this, life, region, was] {
    const auto now = life->stores.find(region);
    if (!life->ended && !life->stood_still && now != life->stores.end() &&
        now->second == was.lock())
      broke("{} is still not released", region);
  });
}

void World::jump(std::size_t index) {
  const auto jump = static_cast<std::int64_t>(below(20'000'000'000)) - 10'000'000'000;
  note("the wall clock of {} jumps by {} ms", machines_[index].name, jump / 1'000'000);
  machines_[index].wall_clock_ns += jump;
}

/// Whoever reaches a socket may send anything: noise, or the beginning of what is well formed.
void World::send_garbage(std::size_t index) {
  Life* life = machines_[index].life;
  SimNode& node = life->member->node();
  std::vector<std::byte> bytes;
  const bool noise = chance(0.5);
  const bool to_gossip = chance(0.5);
  if (noise) {
    bytes.resize(below(200));
  } else if (to_gossip) {
    GossipFrame frame;
    frame.sender.who = make_identity("stranger", 1 + below(1000), "tcp://10.9.9.9:1", 1);
    frame.body = Ping{1, frame.sender.who};
    bytes = encode(frame);
    bytes.resize(below(bytes.size()));
  } else {
    // Of a stranger, to this incarnation or to one that was.
    Message message;
    message.source = 1 + below(1000);
    message.destination = life->member->incarnation() - below(2);
    message.sequence = below(100);
    message.body = Question(Open{});
    bytes = encode(message).value();
    if (chance(0.5)) bytes.resize(below(bytes.size()));
  }
  if (noise)
    for (std::byte& each : bytes) each = static_cast<std::byte>(below(256));
  if (to_gossip)
    gossip_.send(static_cast<std::uint32_t>(index), life->member->endpoint(), std::move(bytes));
  else
    node.nic(below(node.cards())).arrive(std::move(bytes));
}

/// Everything works from now on; who is away comes back, or stays away.
void World::heal() {
  note("everything is well again");
  calm_ = true;
  cuts_.clear();
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    Life* life = machines_[i].life;
    if (life == nullptr) continue;
    if (life->ended) {
      if (chance(0.7)) start(i);
      continue;
    }
    go_on(*life);
    for (std::size_t card = 0; card < life->member->node().cards(); ++card) {
      LateNic& nic = life->member->node().nic(card);
      SimNic& below_it = nic.card();
      below_it.options().failure_chance = 0;
      below_it.stall(false);
      below_it.refuse_posts(false);
      below_it.fail_reopen(false);
      nic.revive();
    }
  }
}

}  // namespace penstock::sim
