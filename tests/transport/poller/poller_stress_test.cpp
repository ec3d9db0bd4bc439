// Random faults from a seed: whatever happens, no chunk is lost or posted again unasked, and every
// stop and every end is told exactly once.
#include <gtest/gtest.h>

#include <set>

#include "tests/transport/poller/rig.hpp"

namespace penstock {
namespace {

using test::Rig;
using test::shuffled_plan;

class PollerStress : public ::testing::TestWithParam<std::uint64_t> {};

struct Running {
  Rig::Peer* peer;
  std::shared_ptr<const Plan> plan;
  bool complete = false;
  bool idle = false;
  int resumes = 0;
};

TEST_P(PollerStress, EveryChunkLandsAndEveryEndIsToldOnce) {
  const std::uint64_t seed = GetParam();
  sim::SimNicOptions card;
  card.depth_per_peer = 1 + seed % 40;
  card.again_chance = 0.2;
  card.jitter = std::chrono::microseconds(50);
  card.failure_chance = seed % 3 == 0 ? 0.002 : 0;
  card.connect = std::chrono::microseconds(seed % 500);
  card.poll_batch = 1 + seed % 8;
  PollerOptions options;
  options.card_window_operations = 1 + static_cast<std::uint32_t>(seed % 60);
  options.link_window_operations = 1 + static_cast<std::uint32_t>(seed % 30);
  Rig rig(seed, 1 + seed % 3, card, options);
  for (auto* each : rig.cards) each->keep_history();
  std::vector<Running> running;
  for (TransferId id = 0; id < 6; ++id) {
    auto& peer = rig.add_peer(card);
    const auto plan = shuffled_plan(1 + static_cast<std::uint32_t>(rig.network.below(Rig::kPages)),
                                    Rig::kPageBytes, seed + id + 1);
    auto command = rig.start(id, peer, plan);
    command.lane = id % 3 == 0 ? Lane::kUrgent : Lane::kBulk;
    rig.loop->execute(command);
    rig.loop->execute(Grant{id, 16 * Rig::kPageBytes});
    running.push_back({&peer, plan});
  }
  std::size_t stops_asked = 0;
  std::set<TransferId> stopping;
  for (int round = 0; round < 400'000; ++round) {
    rig.step();
    for (const auto& event : rig.take<QuantumDone>())
      rig.loop->execute(Grant{event.transfer, (1 + rig.network.below(32)) * Rig::kPageBytes});
    for (const auto& event : rig.take<TransferIdle>()) {
      Running& each = running.at(event.transfer);
      ASSERT_FALSE(each.idle) << "told twice";
      each.idle = true;
      stopping.erase(event.transfer);
      if (event.complete) {
        ASSERT_EQ(event.completed_bytes, each.plan->bytes());
        each.complete = true;
        continue;
      }
      ++each.resumes;
      each.idle = false;
      rig.loop->execute(ResumeTransfer{event.transfer, each.peer->paths});
      rig.loop->execute(Grant{event.transfer, 16 * Rig::kPageBytes});
    }
    rig.take<LinkFailed>();
    if (rig.network.chance(0.001)) {
      const TransferId id = rig.network.below(running.size());
      if (!running[id].complete && stopping.insert(id).second) {
        ++stops_asked;
        rig.loop->execute(StopTransfer{id});
      }
    }
    if (rig.network.chance(0.0005))
      rig.loop->execute(
          ReopenOutbound{static_cast<std::uint16_t>(rig.network.below(rig.cards.size()))});
    if (std::all_of(running.begin(), running.end(), [](const auto& r) { return r.complete; }))
      break;
    rig.network.advance(std::chrono::nanoseconds(rig.network.below(5000)));
  }
  std::uint64_t chunks = 0;
  for (const auto& each : running) {
    ASSERT_TRUE(each.complete) << "seed " << seed;
    EXPECT_TRUE(rig.arrived(*each.plan, *each.peer));
    chunks += each.plan->chunks();
  }
  // A chunk is posted again only by a resume, and then without an immediate.
  std::map<std::pair<PeerHandle, std::uint64_t>, int> times;
  std::uint64_t posts = 0;
  for (auto* each : rig.cards)
    for (const auto& write : each->history()) {
      ++times[{write.peer, write.remote_address}];
      ++posts;
    }
  EXPECT_EQ(times.size(), chunks);
  std::map<PeerHandle, int> resumes;
  for (const auto& each : running) {
    const auto handle = each.peer->card->add_peer(each.peer->card->inbound_address()).value();
    resumes[handle] = each.resumes;
  }
  for (const auto& [chunk, count] : times) EXPECT_LE(count, 1 + resumes[chunk.first]);
  rig.run();
  EXPECT_TRUE(rig.loop->idle());
  EXPECT_EQ(rig.count<TransferIdle>(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PollerStress, ::testing::Range<std::uint64_t>(1, 61));

}  // namespace
}  // namespace penstock
