// What the client waits for, by a clock that the test turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cpp/pending_requests.hpp"
#include "client/cpp/transfer_state.hpp"

namespace penstock::client {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

const Clock::time_point kStart{};

Request request(std::uint64_t id, std::uint32_t timeout_ms, bool repeatable = false) {
  return {.id = id, .operation = "x", .timeout_ms = timeout_ms, .repeatable = repeatable};
}

std::vector<std::uint64_t> ids_of(const std::vector<Request>& requests) {
  std::vector<std::uint64_t> ids;
  for (const auto& request : requests) ids.push_back(request.id);
  return ids;
}

TransferResult done(std::uint64_t id) {
  TransferResult result;
  result.id = id;
  return result;
}

TEST(PendingRequests, EachEndsAtItsOwnDeadlineInTheirOrder) {
  PendingRequests pending;
  pending.add(request(1, 100), kStart);
  pending.add(request(2, 50), kStart);
  pending.add(request(3, 200), kStart);
  EXPECT_EQ(pending.next_deadline(), kStart + 50ms);
  EXPECT_THAT(ids_of(pending.take_expired(kStart + 49ms)), IsEmpty());
  EXPECT_THAT(ids_of(pending.take_expired(kStart + 100ms)), ElementsAre(2, 1));
  EXPECT_THAT(ids_of(pending.take_expired(kStart + 100ms)), IsEmpty());
}

TEST(PendingRequests, AnAnsweredOneDoesNotExpire) {
  PendingRequests pending;
  pending.add(request(1, 100), kStart);
  EXPECT_TRUE(pending.take(1));
  EXPECT_FALSE(pending.take(1));
  EXPECT_EQ(pending.next_deadline(), std::nullopt);
}

TEST(PendingRequests, ANewConnectionCarriesTheUnsentAndTheRepeatable) {
  PendingRequests pending;
  pending.add(request(1, 100), kStart).sent = true;
  pending.add(request(2, 100, true), kStart).sent = true;
  pending.add(request(3, 100), kStart);
  std::vector<std::uint64_t> ids;
  for (auto* request : pending.to_send()) ids.push_back(request->id);
  EXPECT_THAT(ids, ElementsAre(2, 3));
}

TEST(WaitingTransfers, AsksOnlyForThoseOldEnoughAndTakesTurns) {
  WaitingTransfers waiting;
  for (std::uint64_t id : {1, 2, 3}) {
    waiting.accept(id, std::make_shared<TransferState>(), 1, kStart);
  }
  waiting.accept(4, std::make_shared<TransferState>(), 1, kStart + 5s);
  EXPECT_THAT(waiting.to_ask(kStart + 500ms, 1s, 10), IsEmpty());
  EXPECT_THAT(waiting.to_ask(kStart + 1s, 1s, 2), ElementsAre(1, 2));
  EXPECT_THAT(waiting.to_ask(kStart + 1s, 1s, 2), ElementsAre(3, 1));
  EXPECT_THAT(waiting.to_ask(kStart + 5s, 0s, 10), ElementsAre(2, 3, 4, 1));
}

TEST(WaitingTransfers, AnEndBeforeTheAcceptanceCountsWhileARequestIsUnderWay) {
  WaitingTransfers waiting;
  waiting.request_sent();
  waiting.end(done(5));
  auto state = std::make_shared<TransferState>();
  waiting.accept(5, state, 1, kStart);
  EXPECT_EQ(state->future().wait_for(0s), std::future_status::ready);
  waiting.request_answered();
  auto later = std::make_shared<TransferState>();
  waiting.accept(5, later, 1, kStart);
  EXPECT_NE(later->future().wait_for(0s), std::future_status::ready);
}

TEST(WaitingTransfers, HandlesOfARepeatedKeyEndTogether) {
  WaitingTransfers waiting;
  auto first = std::make_shared<TransferState>();
  auto second = std::make_shared<TransferState>();
  waiting.accept(5, first, 1, kStart);
  waiting.accept(5, second, 1, kStart);
  waiting.end(done(5));
  EXPECT_EQ(first->future().get().id, 5u);
  EXPECT_EQ(second->future().wait_for(0s), std::future_status::ready);
  EXPECT_TRUE(waiting.empty());
}

TEST(WaitingTransfers, LosesOnlyWhatAnOlderConnectionAccepted) {
  WaitingTransfers waiting;
  auto old = std::make_shared<TransferState>();
  auto young = std::make_shared<TransferState>();
  waiting.accept(1, old, 1, kStart);
  waiting.accept(2, young, 2, kStart);
  waiting.lose_before(2, Error("PEER_LEFT", "restarted"));
  EXPECT_EQ(old->future().get().state, TransferResult::State::kLost);
  EXPECT_NE(young->future().wait_for(0s), std::future_status::ready);
}

TEST(TransferState, EndsOnce) {
  TransferState state;
  int calls = 0;
  state.on_done([&](const TransferResult& result) { calls += result.done() ? 1 : 100; });
  state.end(done(1));
  state.end(untold(TransferResult::State::kLost, 1, Error("X", "late")));
  EXPECT_TRUE(state.future().get().done());
  EXPECT_EQ(calls, 1);
}

TEST(TransferState, AnIdThatIsNotKnownYetIsWaitedForOnlySoLong) {
  TransferState state;
  EXPECT_EQ(state.id_within(0ms), std::nullopt);
  state.accept(3);
  EXPECT_EQ(state.id_within(0ms), 3u);
}

}  // namespace
}  // namespace penstock::client
