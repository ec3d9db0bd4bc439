// Plays the other node to one Peer, and writes down everything that the Peer does.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "actors/peer/peer.hpp"

namespace penstock {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using namespace std::chrono_literals;

inline FabricAddress address(const std::string& text) {
  FabricAddress result;
  for (const char c : text) result.push_back(static_cast<std::byte>(c));
  return result;
}

inline std::string text_of(const FabricAddress& address) {
  std::string result;
  for (const std::byte b : address) result.push_back(static_cast<char>(b));
  return result;
}

inline constexpr Incarnation kOurs = 100;
inline constexpr Incarnation kTheirs = 200;

/// A Peer of node "b" as node "a" sees it, with everything it does written down. The test plays b.
class PeerTest : public testing::Test {
 protected:
  struct Sent {
    LinkId link;
    Message message;
  };
  struct Opened {
    std::size_t device;
    OpenLink link;
  };

  void make(std::vector<std::size_t> our_cards, std::size_t their_cards) {
    Peer::Options options;
    options.node = "a";
    options.incarnation = kOurs;
    options.wire_version = our_version;
    for (std::size_t i = 0; i < our_cards.size(); ++i)
      options.devices.push_back({"gpu" + std::to_string(i), our_cards[i]});
    MemberRecord record;
    record.node = "b";
    record.incarnation = kTheirs;
    record.wire_version = their_version;
    for (std::size_t i = 0; i < their_cards; ++i) {
      const auto nic = static_cast<std::uint16_t>(i);
      record.cards.push_back({"numa0", nic, "card", address("control" + std::to_string(i))});
    }
    Peer::Port port;
    port.command = [this](std::size_t device, PollerCommand c) { execute(device, std::move(c)); };
    port.new_link = [this] { return ++last_link; };
    port.answered = [this](std::uint64_t token, Result<Answer> answer) {
      EXPECT_TRUE(answers.emplace(token, std::move(answer)).second) << "answered twice: " << token;
    };
    port.asked = [this](std::uint64_t sequence, Question, std::optional<TimePoint> at) {
      asked.push_back(sequence);
      asked_at.push_back(at);
    };
    port.up = [this] { ++ups; };
    port.inbound_cards = [this] { return ours; };
    port.links_back = [this](std::size_t device, const std::string& theirs) {
      backs.emplace_back(device, theirs);
    };
    port.card_seen = [this](std::size_t device, std::uint16_t nic, CardView view,
                            const std::string& why) {
      views[{device, nic}] = view;
      if (view == CardView::kOut) out_because = why;
    };
    peer = std::make_unique<Peer>(record, options, port);
  }

  void execute(std::size_t device, PollerCommand command) {
    if (auto* open = std::get_if<OpenLink>(&command)) {
      opened.push_back({device, *open});
      inbound[open->link] = text_of(open->inbound);
    } else if (auto* move = std::get_if<MoveLink>(&command)) {
      ASSERT_TRUE(inbound.contains(move->link)) << "moved but not open";
      inbound[move->link] = text_of(move->inbound);
      ++moves;
    } else if (auto* close = std::get_if<CloseLink>(&command)) {
      EXPECT_EQ(inbound.erase(close->link), 1u) << "closed but not open";
    } else if (auto* send = std::get_if<SendMessage>(&command)) {
      EXPECT_TRUE(inbound.contains(send->link)) << "sent over a link that is not open";
      EXPECT_EQ(device, device_of(send->link)) << "sent by another device's poller";
      auto message = decode_message(send->payload);
      ASSERT_TRUE(message) << message.error().message;
      EXPECT_EQ(message->source, kOurs);
      EXPECT_EQ(message->destination, kTheirs);
      sent.push_back({send->link, *message});
    } else if (auto* cut = std::get_if<CutOff>(&command)) {
      EXPECT_EQ(device, device_of(cut->link)) << "told another device's poller";
      cut_offs.push_back(cut->link);
    } else {
      FAIL() << "a command that no peer should give";
    }
  }

  std::size_t device_of(LinkId link) const {
    for (const Opened& o : opened)
      if (o.link.link == link) return o.device;
    return 999;
  }

  void advance(Clock::duration time) {
    const TimePoint end = now + time;
    while (peer->next_tick() <= end) {
      ASSERT_GT(peer->next_tick(), last_tick) << "a tick that changes nothing";
      now = last_tick = std::max(now, peer->next_tick());
      peer->tick(now);
    }
    now = end;
  }

  void deliver(std::uint64_t sequence, std::variant<Question, Answer> body) {
    Message message;
    message.source = kTheirs;
    message.destination = kOurs;
    message.sequence = sequence;
    message.body = std::move(body);
    message.sent_ms = PeerClock::ms_of(now + their_clock);
    peer->receive(message, now);
  }

  template <class T>
  std::vector<Sent> questions() const {
    std::vector<Sent> found;
    for (const Sent& s : sent)
      if (const auto* q = std::get_if<Question>(&s.message.body))
        if (std::holds_alternative<T>(*q)) found.push_back(s);
    return found;
  }
  template <class T>
  std::vector<T> answers_sent() const {
    std::vector<T> found;
    for (const Sent& s : sent)
      if (const auto* a = std::get_if<Answer>(&s.message.body))
        if (const auto* t = std::get_if<T>(a)) found.push_back(*t);
    return found;
  }

  static std::vector<DeviceCards> cards(std::size_t count, std::uint32_t generation) {
    DeviceCards device{"numa0", {}};
    for (std::size_t i = 0; i < count; ++i)
      device.cards.push_back(
          {static_cast<std::uint16_t>(i), generation,
           address("in" + std::to_string(i) + "." + std::to_string(generation))});
    return {device};
  }

  void bring_up(std::size_t their_cards) {
    peer->start(now);
    deliver(questions<Hello>().back().message.sequence, Answer(HelloOk{cards(their_cards, 1)}));
    ASSERT_TRUE(peer->is_up());
  }

  /// The Hellos that name the way they take, newest last.
  std::vector<Sent> probes() const {
    std::vector<Sent> found;
    for (const Sent& each : questions<Hello>())
      if (!way_of(each).to_device.empty()) found.push_back(each);
    return found;
  }
  static Hello::Way way_of(const Sent& probe) {
    return std::get<Hello>(std::get<Question>(probe.message.body)).way;
  }
  /// The peer answers every probe sent so far for which `works(from card, to card)`.
  template <class Works>
  void answer_probes(Works works) {
    for (const Sent& probe : probes())
      if (works(way_of(probe).from_nic, way_of(probe).to_nic))
        deliver(probe.message.sequence, Answer(HelloOk{}));
  }
  using Pairs = std::set<std::pair<std::uint16_t, std::uint16_t>>;
  Pairs pairs() {
    Pairs result;
    const auto paths = *peer->links(0, "numa0", now);
    for (const auto& path : paths) result.emplace(path.local_nic, path.remote_nic);
    return result;
  }

  std::vector<std::string> inbound_of(const std::vector<Peer::PathCard>& paths) {
    std::vector<std::string> result;
    for (const auto& path : paths) result.push_back(inbound[path.link]);
    return result;
  }

  TimePoint now = TimePoint(1h);
  TimePoint last_tick = TimePoint::min();
  LinkId last_link = 0;
  std::vector<DeviceCards> ours = {{"gpu0", {{0, 1, address("our0")}}}};
  std::vector<Opened> opened;
  std::map<LinkId, std::string> inbound;  // of the open links
  std::vector<Sent> sent;
  std::map<std::uint64_t, Result<Answer>> answers;
  std::vector<std::uint64_t> asked;
  std::vector<std::optional<TimePoint>> asked_at;
  Clock::duration their_clock = 5h;  // ahead of ours
  std::vector<LinkId> cut_offs;
  std::vector<std::pair<std::size_t, std::string>> backs;
  std::map<std::pair<std::size_t, std::uint16_t>, CardView> views;
  std::string out_because;
  int ups = 0;
  int moves = 0;
  std::uint32_t our_version = kWireVersion;
  std::uint32_t their_version = kWireVersion;
  std::unique_ptr<Peer> peer;
};

}  // namespace penstock
