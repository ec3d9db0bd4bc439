// Plays the poller, the peers and the copier to one Outbound, and writes down what it does.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "actors/device/outbound.hpp"

namespace penstock {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Outcome = TransferResult::State;
using Remote = TransferResult::Remote;
using State = Outbound::State;

class OutboundTest : public testing::Test {
 protected:
  static constexpr Incarnation kPeer = 77;
  struct Asked {
    Incarnation peer;
    std::uint64_t token;
    Question question;
    TimePoint deadline;
  };

  OutboundTest() { make(); }

  void make() {
    options.node = "a";
    outbound = std::make_unique<Outbound>(
        options, Outbound::Port{
                     .command = [this](PollerCommand c) { commands.push_back(std::move(c)); },
                     .ask =
                         [this](Incarnation peer, std::uint64_t token, Question q, TimePoint due) {
                           asked.push_back({peer, token, std::move(q), due});
                         },
                     .copy = [this](CopyTask task) { copies.push_back(std::move(task)); },
                     .notify = [this](Notification n) { notified.push_back(std::move(n)); },
                     .ended =
                         [this](TransferResult r) {
                           const auto id = r.id;
                           EXPECT_TRUE(ended.emplace(id, std::move(r)).second) << "ended twice";
                         },
                 });
  }

  std::shared_ptr<RegionUse> use(const std::string& name) {
    if (!table.use(name)) {
      auto region = std::make_shared<Region>();
      region->name = name;
      region->bytes = 1 << 20;
      table.publish(region);
    }
    return std::make_shared<RegionUse>(std::move(*table.use(name)));
  }

  Admitted admitted(TransferId id, std::size_t chunks = 4) {
    std::vector<Range> ranges;
    for (std::uint64_t i = 0; i < chunks; ++i) ranges.push_back({i * 200, i * 200, 100});
    Admitted a;
    a.id = id;
    a.node = "b";
    a.remote_region = "theirs";
    a.plan = *Plan::make(Ranges{BlobList<Range>::of(ranges)}, {});
    a.local = use("ours");
    a.deadline = now + 60s;
    return a;
  }

  // -- to a state --------------------------------------------------------------------------------
  void opening(Admitted a) {
    outbound->peer_up("b", kPeer, now);
    outbound->admit(std::move(a), now);
  }
  void running(Admitted a) {
    const TransferId id = a.id;
    opening(std::move(a));
    answer(OpenOk{"numa0", 5, 9, 1 << 20, {{0, 0, 11}, {1, 0, 22}}});
    ASSERT_EQ(state(id), State::kRunning);
  }
  void finishing(Admitted a) {
    a.notify = "word";
    const TransferId id = a.id;
    running(std::move(a));
    outbound->idle(complete(id), now);
    ASSERT_EQ(state(id), State::kFinishing);
  }
  void stopping(Admitted a) {
    const TransferId id = a.id;
    running(std::move(a));
    outbound->cancel(id, now);
    ASSERT_EQ(state(id), State::kStopping);
  }
  /// After a failure: the fence asks for leave to go on.
  void fencing(Admitted a) {
    const TransferId id = a.id;
    running(std::move(a));
    outbound->idle(failed(id), now);
    ASSERT_EQ(state(id), State::kFencing);
  }
  void backing_off(Admitted a) {
    const TransferId id = a.id;
    fencing(std::move(a));
    answer(fenced());
    outbound->idle(failed(id), now);
    answer(fenced());
    ASSERT_EQ(state(id), State::kBackingOff);
  }

  // -- what the others say -----------------------------------------------------------------------
  static std::vector<Peer::PathCard> links() { return {{1, 0, 0, 3}, {2, 1, 1, 4}}; }
  static Fenced fenced() { return {{{0, 4, {}}, {1, 4, {}}}, {{0, 0, 11}, {1, 0, 22}}}; }
  static TransferIdle complete(TransferId id, std::uint64_t bytes = 400) {
    TransferIdle event;
    event.transfer = id;
    event.complete = true;
    event.completed_bytes = bytes;
    return event;
  }
  static TransferIdle failed(TransferId id, std::uint64_t bytes = 100) {
    TransferIdle event;
    event.transfer = id;
    event.error = Error{ErrorCode::kProvider, "broken pipe"};
    event.dirty_nics = {1};
    event.dirty_links = {2};
    event.completed_bytes = bytes;
    event.landed = {1};
    return event;
  }
  static TransferIdle stopped(TransferId id) {
    TransferIdle event = failed(id);
    event.error.reset();
    event.dirty_nics.clear();
    event.dirty_links.clear();
    return event;
  }

  /// Answers the newest question that has a token.
  void answer(Result<Answer> with) { answer(with, last_token()); }
  void answer(Result<Answer> with, std::uint64_t token) {
    outbound->answered(token, std::move(with), links(), now);
  }
  std::uint64_t last_token() const {
    for (auto it = asked.rbegin(); it != asked.rend(); ++it)
      if (it->token) return it->token;
    ADD_FAILURE() << "nothing was asked";
    return 0;
  }
  static Result<Answer> error(ErrorCode code) { return tl::unexpected(Error{code, "so"}); }

  void advance(Clock::duration by) {
    const TimePoint end = now + by;
    while (outbound->next_tick() <= end) {
      now = std::max(now, outbound->next_tick());
      outbound->tick(now);
    }
    now = end;
  }

  // -- what it did -------------------------------------------------------------------------------
  State state(TransferId id) const {
    for (const auto& each : outbound->snapshot())
      if (each.id == id) return each.state;
    ADD_FAILURE() << "transfer " << id << " has ended";
    return State::kQueued;
  }
  template <class T>
  std::vector<T> pushed() const {
    std::vector<T> found;
    for (const auto& command : commands)
      if (auto* one = std::get_if<T>(&command)) found.push_back(*one);
    return found;
  }
  template <class T>
  std::vector<T> questions() const {
    std::vector<T> found;
    for (const auto& each : asked)
      if (auto* one = std::get_if<T>(&each.question)) found.push_back(*one);
    return found;
  }
  void expect_end(TransferId id, Outcome outcome, Remote remote) {
    // Where the owner did not answer, it is told on until the lease ends.
    expect_end(id, outcome, remote, remote == Remote::kUnreachable);
  }
  void expect_end(TransferId id, Outcome outcome, Remote remote, bool told_on) {
    ASSERT_TRUE(ended.contains(id)) << "no terminal event";
    EXPECT_EQ(ended.at(id).state, outcome) << ended.at(id).error.message;
    EXPECT_EQ(ended.at(id).remote, remote);
    EXPECT_EQ(outbound->size(), 0u);
    EXPECT_EQ(pushed<EndTransfer>().size(), pushed<StartTransfer>().size());
    EXPECT_EQ(outbound->next_tick() != TimePoint::max(), told_on);
    EXPECT_EQ((*use("ours"))->uses, 1u) << "the region is still held";
  }

  TimePoint now{1h};
  Outbound::Options options;
  RegionTable table;
  std::unique_ptr<Outbound> outbound;
  std::vector<PollerCommand> commands;
  std::vector<Asked> asked;
  std::vector<CopyTask> copies;
  std::vector<Notification> notified;
  std::map<TransferId, TransferResult> ended;
};

}  // namespace penstock
