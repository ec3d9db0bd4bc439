// Whole simulated nodes of four cards: one card dies or goes dark under long transfers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/sim/nodes/sim_node.hpp"

namespace penstock::sim {
namespace {

using namespace std::chrono_literals;

class CardFailover : public testing::Test {
 protected:
  static constexpr std::size_t kPage = 1024;
  static constexpr std::size_t kPages = 2000;
  struct Member {
    std::vector<std::byte> memory = std::vector<std::byte>(kPages * kPage);
    std::unique_ptr<SimNode> node;
    bool stopped = false;
  };

  void start(const std::string& name, std::size_t cards) {
    SimNodeOptions options;
    options.name = name;
    options.incarnation = 1000 * (members.size() + 1);
    options.cards = cards;
    options.nic.jitter = 50us;
    options.nic.bytes_per_second = 1e6;  // a page takes a millisecond
    options.poller.card_window_bytes = 16 * kPage;
    options.poller.link_window_bytes = 8 * kPage;
    options.poller.card_stall = 100ms;
    options.outbound.scheduler = {32 * kPage, 2};
    options.outbound.window_bytes = 64 * kPage;
    SimNodeObserver observer;
    observer.ended = [this](const TransferResult& result) {
      ended[result.id] = result;
      ended_at[result.id] = network.now();
    };
    observer.notified = [this](const Notification& word) { ++notified[word.transfer]; };
    observer.broken = [](Incarnation, TransferId) {};
    observer.released = [](const std::string&) {};
    auto& member = members.emplace_back(std::make_unique<Member>());
    member->node = std::make_unique<SimNode>(wire, options, observer);
    member->node->add_region(name, member->memory);
    for (const auto& other : members) {
      if (other == member) continue;
      member->node->meet(other->node->record());
      other->node->meet(member->node->record());
    }
  }

  /// Node 0 writes `pages` of its pages into node `to`, at the same places.
  void write(TransferId id, std::size_t to, std::size_t pages, const std::string& notify = "") {
    Member& from = *members[0];
    const std::string& name = members[to]->node->record().node;
    std::vector<Range> ranges;
    for (std::uint64_t i = 0; i < pages; ++i) {
      const std::uint64_t at = (i * 7 % kPages) * kPage;
      ranges.push_back({at, at, kPage});
      for (std::size_t b = 0; b < kPage; ++b)
        from.memory[at + b] = static_cast<std::byte>((at / kPage + b) % 251 + 1);
    }
    Admitted admitted;
    admitted.id = id;
    admitted.node = name;
    admitted.remote_region = name;
    admitted.plan = *Plan::make(Ranges{BlobList<Range>::of(ranges)}, {kPage, false});
    admitted.local =
        std::make_shared<RegionUse>(std::move(*from.node->regions().use(from.node->record().node)));
    admitted.notify = notify;
    admitted.deadline = network.now() + 30s;
    admitted.packing = PackingMode::kNever;
    plans[id] = {admitted.plan, to};
    from.node->admit(std::move(admitted));
  }

  bool right(TransferId id) const {
    Cursor cursor(*plans.at(id).first);
    const auto& to = *members[plans.at(id).second];
    Chunk chunk;
    while (cursor.next(chunk))
      if (std::memcmp(members[0]->memory.data() + chunk.source_offset,
                      to.memory.data() + chunk.destination_offset, chunk.length) != 0)
        return false;
    return true;
  }

  void run_until(const std::function<bool()>& there, Clock::duration most) {
    const auto end = network.now() + most;
    while (!there() && network.now() < end) {
      for (std::size_t quiet = 0; quiet < 2;) {
        std::size_t happened = 0;
        for (const auto& member : members)
          if (!member->stopped) happened += member->node->step();
        quiet = happened == 0 ? quiet + 1 : 0;
      }
      if (!network.advance_to_next()) network.advance(1ms);
    }
  }
  void run_for(Clock::duration time) {
    run_until([] { return false; }, time);
  }
  void expect_done(TransferId id, Clock::duration within) {
    run_until([&] { return ended.contains(id); }, within);
    ASSERT_TRUE(ended.contains(id)) << "transfer " << id << " has not ended";
    EXPECT_EQ(ended[id].state, TransferResult::State::kDone) << ended[id].error.message;
    EXPECT_TRUE(right(id));
  }
  LateNic& card(std::size_t member, std::size_t i) { return members[member]->node->nic(i); }
  /// SIGSTOP: its cards still take what arrives, but nobody answers. With the tcp provider writes
  /// do not complete either.
  void stop(std::size_t member, bool stopped) {
    members[member]->stopped = stopped;
    for (std::size_t i = 0; i < members[member]->node->cards(); ++i)
      card(member, i).card().stall(stopped);
  }

  SimNetwork network{77};
  Wire wire{network};
  std::vector<std::unique_ptr<Member>> members;
  std::map<TransferId, std::pair<std::shared_ptr<const Plan>, std::size_t>> plans;
  std::map<TransferId, TransferResult> ended;
  std::map<TransferId, TimePoint> ended_at;
  std::map<TransferId, int> notified;
};

TEST_F(CardFailover, ATransferOutlivesACardThatDies) {
  start("a", 4);
  start("b", 4);
  run_for(10ms);
  write(1, 1, 800);  // 200 ms on four cards
  run_for(50ms);
  card(0, 2).die();
  expect_done(1, 400ms);
}

TEST_F(CardFailover, ATransferOutlivesACardThatGoesDarkThoughMessagesWentOverIt) {
  wire.late_chance = 1;
  start("a", 4);
  start("b", 4);
  run_for(10ms);
  write(1, 1, 800);
  run_for(50ms);
  card(0, 0).card().stall(true);  // the first card: where first contact was made
  // The stall, the others' work, then the fence, whose way has to change first.
  expect_done(1, 900ms);
  EXPECT_EQ(card(0, 0).reopens(), 1u);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(card(0, i).reopens(), 0u);
  run_for(1s);
  EXPECT_FALSE(members[0]->node->health(0).up());
  EXPECT_EQ(members[0]->node->health(0).outages(), 1u);
  EXPECT_TRUE(members[0]->node->health(1).up());
}

TEST_F(CardFailover, AShortTransferWhoseLastChunksAreOnADarkCardIsNotForgotten) {
  start("a", 4);
  start("b", 4);
  run_for(10ms);
  card(0, 3).card().stall(true);
  write(1, 1, 12);  // the other cards are done long before the stall is noticed
  expect_done(1, 900ms);
}

TEST_F(CardFailover, OthersCarryOnWithoutAPause) {
  start("a", 4);
  start("b", 4);
  start("c", 4);
  run_for(10ms);
  write(1, 1, 400);
  write(2, 2, 400);
  run_for(30ms);
  std::uint64_t before = 0;
  for (std::size_t i = 1; i < 4; ++i) before += card(0, i).card().posts();
  card(0, 0).card().stall(true);
  for (int i = 0; i < 20; ++i) {
    run_for(5ms);
    std::uint64_t after = 0;
    for (std::size_t k = 1; k < 4; ++k) after += card(0, k).card().posts();
    EXPECT_GE(after - before, 10u) << "the three others do fifteen pages in this time";
    before = after;
  }
  expect_done(1, 2s);
  expect_done(2, 2s);
}

TEST_F(CardFailover, ACardThatReturnsIsUsedAgainByTheTransferThatLostIt) {
  start("a", 4);
  start("b", 4);
  run_for(10ms);
  write(1, 1, 1900);  // about 600 ms on three cards
  run_for(20ms);
  card(0, 1).die();
  run_for(80ms);
  const auto before = card(0, 1).card().posts();
  card(0, 1).revive();
  run_until([&] { return card(0, 1).card().posts() > before; }, 300ms);
  EXPECT_GT(card(0, 1).card().posts(), before) << "within the probes' pause";
  EXPECT_FALSE(ended.contains(1)) << "while the transfer runs";
  expect_done(1, 2s);
  EXPECT_TRUE(members[0]->node->health(1).up());
}

TEST_F(CardFailover, ADarkCardThatReturnsIsUsedAgain) {
  wire.late_chance = 1;
  start("a", 4);
  start("b", 4);
  run_for(10ms);
  write(1, 1, 400);
  run_for(20ms);
  card(0, 1).card().stall(true);
  expect_done(1, 1s);
  run_for(1s);
  EXPECT_FALSE(members[0]->node->health(1).up());
  card(0, 1).card().stall(false);
  run_for(2500ms);
  EXPECT_TRUE(members[0]->node->health(1).up());
  const auto before = card(0, 1).card().posts();
  write(2, 1, 200);
  expect_done(2, 1s);
  EXPECT_GE(card(0, 1).card().posts() - before, 40u) << "its share is a quarter";
}

TEST_F(CardFailover, ADeadCardHereAndAnotherOneThereCostOneRailTogether) {
  start("a", 4);
  start("b", 4);
  run_for(10ms);
  card(0, 0).die();
  card(1, 1).die();
  write(1, 1, 200);
  expect_done(1, 2s);
  run_for(500ms);
  const auto before = network.now();
  write(2, 1, 600);
  expect_done(2, 2s);
  EXPECT_LT(ended_at[2] - before, 260ms) << "three cards take 200 ms, two 300 ms";
}

TEST_F(CardFailover, UnequalCountsSurviveToo) {
  for (const auto& [ours, theirs] : {std::pair<std::size_t, std::size_t>{4, 2}, {1, 3}, {3, 1}}) {
    SCOPED_TRACE(testing::Message() << ours << " cards to " << theirs);
    ended.clear();
    members.clear();
    start("a", ours);
    start("b", theirs);
    run_for(10ms);
    write(1, 1, 400);
    run_for(20ms);
    LateNic& lost = ours > theirs ? card(0, ours - 1) : card(1, theirs - 1);
    lost.card().stall(true);
    expect_done(1, 3s);
  }
}

TEST_F(CardFailover, ACountedTransferIsNotifiedOnceWhateverTheDeadCardDelivered) {
  wire.late_chance = 1;
  start("a", 4);
  start("b", 4);
  run_for(10ms);
  for (TransferId id = 1; id <= 20; ++id) {
    write(id, 1, 40, "arrived");
    run_for(4ms);
    if (id % 2 == 0) card(0, id % 4).die();
    expect_done(id, 2s);
    EXPECT_EQ(notified[id], 1);
    if (id % 2 == 0) card(0, id % 4).revive();
  }
}

TEST_F(CardFailover, AStoppedPeerHasNothingReopenedAndItsTransferGoesOnWithIt) {
  start("a", 4);
  start("b", 4);
  start("c", 4);
  run_for(10ms);
  write(1, 1, 200);
  write(2, 2, 600);
  run_for(20ms);
  stop(1, true);
  expect_done(2, 1s);
  run_for(2s);
  EXPECT_FALSE(ended.contains(1));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(card(0, i).reopens(), 0u);
  stop(1, false);
  expect_done(1, 1s);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(card(0, i).reopens(), 0u);
    EXPECT_TRUE(members[0]->node->health(i).up());
  }
}

}  // namespace
}  // namespace penstock::sim
