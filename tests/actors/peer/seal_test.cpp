// Two peers that seal their messages, and what becomes of messages that others send.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "actors/peer/peer.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

Open open_of(const std::string& region) {
  Open open;
  open.region = region;
  return open;
}

/// One run of a node's service.
struct Life {
  Life(std::string name, Incarnation run, const Key& cluster_key)
      : node(std::move(name)), incarnation(run), cluster(cluster_key) {}
  MemberRecord record() const {
    MemberRecord record;
    record.node = node;
    record.incarnation = incarnation;
    record.cards = {{"numa0", 0, "card", bytes_of("control of " + node)}};
    for (const std::uint8_t byte : session.public_key)
      record.fabric_key.push_back(static_cast<std::byte>(byte));
    return record;
  }
  std::string node;
  Incarnation incarnation;
  Key cluster;
  KeyPair session = make_key_pair();
};

/// A Peer of `theirs` in the service `ours`; what it sends is kept until somebody carries it.
struct End {
  End(const Life& ours, const Life& theirs) {
    Peer::Options options;
    options.node = ours.node;
    options.incarnation = ours.incarnation;
    options.devices = {{"numa0", 1}};
    options.secrets = {ours.session.secret_key, ours.cluster};
    Peer::Port port;
    port.command = [this](std::size_t, PollerCommand command) {
      if (auto* send = std::get_if<SendMessage>(&command)) sent.push_back(send->payload);
    };
    port.new_link = [this] { return ++last_link; };
    port.answered = [this](std::uint64_t, Result<Answer> answer) {
      answers.push_back(std::move(answer));
    };
    port.asked = [this](std::uint64_t sequence, Question question, std::optional<TimePoint>) {
      asked.emplace_back(sequence, std::move(question));
    };
    port.up = [this] { ++ups; };
    port.inbound_cards = [name = ours.node] {
      return std::vector<DeviceCards>{{"numa0", {{0, 1, bytes_of("inbound of " + name)}}}};
    };
    peer = std::make_unique<Peer>(theirs.record(), std::move(options), std::move(port));
  }
  bool receive(const std::vector<std::byte>& bytes, TimePoint now) {
    auto message = decode_sealed_message(bytes);
    if (!message) return false;
    return peer->receive(std::move(*message), now);
  }

  std::unique_ptr<Peer> peer;
  std::deque<std::vector<std::byte>> sent;
  std::vector<std::pair<std::uint64_t, Question>> asked;
  std::vector<Result<Answer>> answers;
  LinkId last_link = 0;
  int ups = 0;
};

class SealedPeers : public testing::Test {
 protected:
  /// Until nothing is under way; everything that was carried is kept as a stranger may have it.
  void carry(End& a, End& b) {
    while (!a.sent.empty() || !b.sent.empty()) {
      End& from = a.sent.empty() ? b : a;
      End& to = a.sent.empty() ? a : b;
      recorded.push_back(from.sent.front());
      EXPECT_TRUE(to.receive(from.sent.front(), now));
      from.sent.pop_front();
      ASSERT_LT(recorded.size(), 1000u) << "they never come to rest";
    }
  }
  void meet(End& a, End& b) {
    a.peer->start(now);
    b.peer->start(now);
    carry(a, b);
    ASSERT_TRUE(a.peer->is_up());
    ASSERT_TRUE(b.peer->is_up());
  }
  void ask(End& from, const std::string& region) {
    from.peer->ask(1, open_of(region), now + 2s, now);
  }

  TimePoint now = TimePoint(1h);
  Key cluster = make_key_pair().secret_key;
  Life a_life{"a", 100, cluster}, b_life{"b", 200, cluster};
  std::vector<std::vector<std::byte>> recorded;
};

TEST_F(SealedPeers, ComeUpAndTalk) {
  End a(a_life, b_life), b(b_life, a_life);
  meet(a, b);
  ask(a, "kv");
  carry(a, b);
  ASSERT_EQ(b.asked.size(), 1u);
  b.peer->answer(b.asked[0].first, AlreadyDone{}, now);
  carry(a, b);
  ASSERT_EQ(a.answers.size(), 1u);
  EXPECT_TRUE(a.answers[0]);
}

TEST_F(SealedPeers, DropWhatIsNotSealedOrSealedByAStranger) {
  End a(a_life, b_life), b(b_life, a_life);
  meet(a, b);
  Message forged;
  forged.source = b_life.incarnation;
  forged.destination = a_life.incarnation;
  forged.sequence = 1u << 30;
  forged.body = Question(open_of("kv"));
  auto bytes = *encode(forged);
  EXPECT_FALSE(a.peer->receive(*decode_message(bytes), now));
  // A stranger has the records (as an earlier member may), but not the cluster's key.
  Life stranger = b_life;
  stranger.cluster = make_key_pair().secret_key;
  End impostor(stranger, a_life);
  impostor.peer->start(now);
  ASSERT_FALSE(impostor.sent.empty());
  EXPECT_FALSE(a.receive(impostor.sent.front(), now));
  // Nor does it help to be a member under another name.
  End other(Life("c", 300, cluster), a_life);
  other.peer->start(now);
  auto hello = decode_sealed_message(other.sent.front());
  hello->source = b_life.incarnation;
  EXPECT_FALSE(a.peer->receive(std::move(*hello), now));
  EXPECT_THAT(a.asked, IsEmpty());
}

TEST_F(SealedPeers, RefuseAHandshakeThatWasRecordedInAnEarlierLifeOfTheService) {
  End a(a_life, b_life), b(b_life, a_life);
  meet(a, b);
  ask(b, "kv");
  carry(a, b);
  // a restarts; b's old messages are sent to it again, its incarnation written over.
  const Life again("a", 101, cluster);
  End fresh(again, b_life);
  fresh.peer->start(now);
  for (const auto& bytes : recorded) {
    auto message = decode_sealed_message(bytes);
    message->destination = again.incarnation;
    message->source = b_life.incarnation;
    EXPECT_FALSE(fresh.peer->receive(std::move(*message), now));
  }
  EXPECT_FALSE(fresh.peer->is_up());
  EXPECT_THAT(fresh.asked, IsEmpty());
}

// The same two lives, but a's peer object is a new one: the handshake is a new one too.
TEST_F(SealedPeers, BelieveNothingOfARecordedHandshakeOfTheSameLives) {
  {
    End a(a_life, b_life), b(b_life, a_life);
    meet(a, b);
    ask(b, "kv");
    carry(a, b);
  }
  End a(a_life, b_life);
  a.peer->start(now);
  for (int round = 0; round < 3; ++round)
    for (const auto& bytes : recorded) a.receive(bytes, now);
  EXPECT_FALSE(a.peer->is_up());
  EXPECT_THAT(a.asked, IsEmpty());
  EXPECT_LT(a.sent.size(), 100u);
}

TEST_F(SealedPeers, FindEachOtherAgainWhenOneOfThemIsMadeAnew) {
  End a(a_life, b_life), old(b_life, a_life);
  meet(a, old);
  End b(b_life, a_life);  // a was thought dead at b, and never noticed
  b.peer->start(now);
  carry(a, b);
  EXPECT_TRUE(b.peer->is_up());
  ask(a, "kv");
  carry(a, b);
  EXPECT_EQ(b.asked.size(), 1u);
  ask(b, "kv");
  carry(a, b);
  EXPECT_EQ(a.asked.size(), 1u);
}

// One side is up while its Hello is all that the other has heard: an answer to what it asks by then
// could not be sealed for it.
TEST_F(SealedPeers, TakeNoQuestionBeforeTheyCanSealTheAnswer) {
  End a(a_life, b_life), b(b_life, a_life);
  a.peer->start(now);
  b.peer->start(now);
  const auto hello = std::exchange(b.sent, {});  // late
  EXPECT_TRUE(b.receive(a.sent.front(), now));
  a.sent.clear();
  EXPECT_TRUE(a.receive(b.sent.front(), now));
  b.sent.clear();
  ASSERT_TRUE(a.peer->is_up());
  ASSERT_FALSE(b.peer->is_up());
  ask(a, "kv");
  carry(a, b);
  EXPECT_THAT(b.asked, IsEmpty());
  b.sent = hello;
  carry(a, b);
  ASSERT_TRUE(b.peer->is_up());
  now += 1s;
  a.peer->tick(now);
  carry(a, b);
  ASSERT_EQ(b.asked.size(), 1u);
  b.peer->answer(b.asked[0].first, AlreadyDone{}, now);
  carry(a, b);
  ASSERT_EQ(a.answers.size(), 1u);
  EXPECT_TRUE(a.answers[0]);
}

TEST_F(SealedPeers, GoOnAfterAnInboundEndpointMoved) {
  End a(a_life, b_life), b(b_life, a_life);
  meet(a, b);
  a.peer->inbound_moved(now);
  carry(a, b);
  ask(b, "kv");
  carry(a, b);
  EXPECT_EQ(a.asked.size(), 1u);
}

TEST_F(SealedPeers, DoNotComeUpWithANodeThatHasNoKey) {
  End a(a_life, b_life);
  MemberRecord without = b_life.record();
  without.fabric_key.clear();
  a.peer->start(now);
  Message hello;
  hello.source = b_life.incarnation;
  hello.destination = a_life.incarnation;
  hello.sequence = 1;
  hello.body = Question(Hello{"b", {}, {}});
  EXPECT_FALSE(a.peer->receive(*decode_message(*encode(hello)), now));
  EXPECT_FALSE(a.peer->is_up());
}

}  // namespace
}  // namespace penstock
