// Plays the peers, the poller and the registrar to one Inbound, and writes down what it does.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "actors/device/inbound.hpp"

namespace penstock {

using namespace std::chrono_literals;

class HandedKey final : public MemoryRegistration {
 public:
  explicit HandedKey(std::uint64_t key) : key_(key) {}
  std::uint64_t key() const override { return key_; }
  std::uint64_t remote_base() const override { return 0; }
  void* descriptor() const override { return nullptr; }

 private:
  std::uint64_t key_;
};

class InboundTest : public testing::Test {
 protected:
  static constexpr Incarnation kPeer = 5;

  InboundTest() { make(FenceKind::kReopenInbound); }

  void make(FenceKind kind) {
    options.device = "numa0";
    options.fence = kind;
    options.open_most = 4;
    inbound = std::make_unique<Inbound>(
        options, std::vector<InboundCard>{{0, 1, {}}, {1, 1, {}}}, table, pool,
        Inbound::Port{
            .command = [this](PollerCommand c) { commands.push_back(std::move(c)); },
            .answer =
                [this](Incarnation, std::uint64_t sequence, Answer a) {
                  EXPECT_TRUE(answers.emplace(sequence, std::move(a)).second) << "answered twice";
                },
            .revoke = [this](Incarnation peer, Revoke r) { revokes.emplace_back(peer, r); },
            .notify = [this](Notification n) { notified.push_back(std::move(n)); },
            .rekey = [this](std::shared_ptr<Region> region,
                            std::uint16_t nic) { rekeys.emplace_back(std::move(region), nic); },
            .waits_for = [this](TransferId shadow) { return waited_for.contains(shadow); },
            .broken = [this](Incarnation, TransferId id, Error) { broken.push_back(id); },
        });
    if (!region) {
      region = std::make_shared<Region>();
      region->name = "r";
      region->bytes = 1000;
      region->set_registered(nullptr, {key(), key()});
      table.publish(region);
    }
  }

  std::shared_ptr<MemoryRegistration> key() { return std::make_shared<HandedKey>(++last_key); }

  static Open open_of(TransferId id, std::uint32_t chunks = 3) {
    Open open;
    open.transfer = id;
    open.region = "r";
    open.end = 1000;
    open.bytes = 300;
    open.chunks = chunks;
    open.lease_ms = 10000;
    return open;
  }
  Answer& ask(const Open& question, std::vector<LinkId> links = {}, Incarnation peer = kPeer) {
    inbound->open(peer, "a", ++sequence, question, std::move(links), now, now);
    return answers.at(sequence);
  }
  /// Opens it and returns its immediate.
  std::uint32_t open(TransferId id, Incarnation peer = kPeer, const std::string& notify = "") {
    Open question = open_of(id);
    question.notify = notify;
    ask(question, {}, peer);
    const auto* ok = std::get_if<OpenOk>(&answers.at(sequence));
    return ok && ok->immediate ? *ok->immediate : 0;
  }
  std::uint64_t fence(TransferId id, bool final, std::vector<Fence::Card> cards = {}) {
    inbound->fence(kPeer, ++sequence, {id, "numa0", std::move(cards), final}, now);
    return sequence;
  }
  std::uint64_t fin(TransferId id) {
    inbound->fin(kPeer, ++sequence, {id, "numa0"}, now);
    return sequence;
  }
  void reopened(std::uint16_t nic, std::uint32_t generation) {
    inbound->reopened({nic, generation, {}, {}}, now);
  }
  /// As the registrar does it.
  void rekey_all() {
    for (auto& [of, nic] : std::exchange(rekeys, {})) {
      of->void_key(nic);
      of->set_key(nic, key());
      inbound->rekeyed(of->name, nic, now);
    }
  }
  void reopen_all() {
    std::vector<ReopenInbound> pending = pushed<ReopenInbound>();
    commands.clear();
    for (const auto& each : pending) reopened(each.nic, each.generation + 1);
  }
  void advance(Clock::duration by) {
    now += by;
    inbound->tick(now);
  }

  template <class T>
  bool is(std::uint64_t sequence) const {
    const auto found = answers.find(sequence);
    return found != answers.end() && std::holds_alternative<T>(found->second);
  }
  ErrorCode refusal(std::uint64_t sequence) const {
    return std::get<Refused>(answers.at(sequence)).error.code;
  }
  template <class T>
  std::vector<T> pushed() const {
    std::vector<T> found;
    for (const auto& command : commands)
      if (auto* one = std::get_if<T>(&command)) found.push_back(*one);
    return found;
  }

  TimePoint now{1h};
  Inbound::Options options;
  RegionTable table;
  std::shared_ptr<Region> region;
  std::shared_ptr<StagingPool> pool;  // null unless a test lends
  std::uint64_t last_key = 0;
  std::uint64_t sequence = 0;
  std::vector<PollerCommand> commands;
  std::map<std::uint64_t, Answer> answers;
  std::vector<std::pair<Incarnation, Revoke>> revokes;
  std::vector<Notification> notified;
  std::vector<std::pair<std::shared_ptr<Region>, std::uint16_t>> rekeys;
  std::vector<TransferId> broken;
  std::set<TransferId> waited_for;  // third-party transfers
  std::unique_ptr<Inbound> inbound;
};

}  // namespace penstock
