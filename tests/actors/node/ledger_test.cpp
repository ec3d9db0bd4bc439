#include "actors/node/ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

TransferResult result(TransferId id, TransferResult::State state = TransferResult::State::kDone) {
  TransferResult r;
  r.id = id;
  r.state = state;
  return r;
}

class LedgerTest : public testing::Test {
 protected:
  TimePoint now{1h};
  Ledger ledger{{10min, 3}, 100};
};

TEST_F(LedgerTest, ATransferEndsExactlyOnce) {
  const auto id = ledger.add("client", 1);
  EXPECT_EQ(id, 100u);
  EXPECT_EQ(ledger.in_flight(), 1u);
  EXPECT_TRUE(ledger.end(result(id), now));
  EXPECT_FALSE(ledger.end(result(id, TransferResult::State::kFailed), now));
  EXPECT_FALSE(ledger.end(result(999), now));
  EXPECT_EQ(ledger.in_flight(), 0u);
  EXPECT_EQ(ledger.totals().done, 1u);
  EXPECT_EQ(ledger.totals().failed, 0u);
  EXPECT_EQ(ledger.find(id)->result->state, TransferResult::State::kDone);
}

TEST_F(LedgerTest, EveryEndingHasItsTotal) {
  using State = TransferResult::State;
  for (State state : {State::kDone, State::kFailed, State::kCancelled, State::kExpired})
    ledger.end(result(ledger.add("c", 0), state), now);
  EXPECT_EQ(ledger.totals().accepted, 4u);
  EXPECT_EQ(ledger.totals().done, 1u);
  EXPECT_EQ(ledger.totals().failed, 1u);
  EXPECT_EQ(ledger.totals().cancelled, 1u);
  EXPECT_EQ(ledger.totals().expired, 1u);
}

TEST_F(LedgerTest, EndedOnesAreKeptForAWhileAndNotTooMany) {
  const auto running = ledger.add("c", 0);
  for (int i = 0; i < 5; ++i) ledger.end(result(ledger.add("c", 0)), now + 1s * i);
  EXPECT_THAT(ledger.newest(100), ElementsAre(105, 104, 103, running));
  EXPECT_THAT(ledger.newest(2), ElementsAre(105, 104));
  ledger.forget(now + 10min + 3s);
  EXPECT_THAT(ledger.newest(100), ElementsAre(105, 104, running));
  ledger.forget(now + 24h);
  EXPECT_THAT(ledger.newest(100), ElementsAre(running)) << "what runs is never forgotten";
}

TEST_F(LedgerTest, AKeyStandsForItsTransfersUntilTheyAreForgotten) {
  const auto id = ledger.add("c", 0);
  ledger.set_key("key", {id});
  EXPECT_THAT(ledger.ids_of_key("key"), ElementsAre(id));
  EXPECT_THAT(ledger.ids_of_key("other"), IsEmpty());
  ledger.end(result(id), now);
  EXPECT_THAT(ledger.ids_of_key("key"), ElementsAre(id));
  ledger.forget(now + 24h);
  EXPECT_THAT(ledger.ids_of_key("key"), IsEmpty());
  EXPECT_EQ(ledger.find(id), nullptr);
}

TEST_F(LedgerTest, AKeyWithoutTransfersIsNotKept) {
  ledger.set_key("key", {});
  EXPECT_THAT(ledger.ids_of_key("key"), IsEmpty());
}

// Fails: erase() drops the key with the first of its ids; see Ledger::erase.
TEST_F(LedgerTest, AKeyOutlivesTheFirstOfItsTransfers) {
  const auto first = ledger.add("c", 0);
  const auto second = ledger.add("c", 0);
  ledger.set_key("key", {first, second});
  ledger.end(result(first), now);
  ledger.forget(now + 24h);
  EXPECT_THAT(ledger.ids_of_key("key"), ElementsAre(first, second))
      << "asked again it would start a second time while the second still runs";
  ledger.end(result(second), now + 24h);
  ledger.forget(now + 48h);
  EXPECT_THAT(ledger.ids_of_key("key"), IsEmpty());
}

}  // namespace
}  // namespace penstock
