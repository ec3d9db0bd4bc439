// One connected node, as pure logic: handshake, links, questions repeated until answered. The CAF
// actor around it (peer_actor) only carries messages and time in and out; so does the simulation.
//
//   connecting --Hello answered--> up --close()--> closed
//
// A peer is one incarnation. A restarted node is another Peer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/clock.hpp"
#include "actors/membership/member.hpp"
#include "actors/peer/answered_questions.hpp"
#include "actors/peer/peer_clock.hpp"
#include "actors/peer/peer_links.hpp"
#include "actors/security/seal.hpp"
#include "actors/wire/message.hpp"
#include "transport/poller/command.hpp"

namespace penstock {

class Peer {
 public:
  struct LocalDevice {
    std::string name;
    std::size_t cards = 0;
  };
  struct Options {
    std::string node;  // ours
    Incarnation incarnation = 0;
    std::uint32_t wire_version = kWireVersion;  // the newest that we speak
    std::vector<LocalDevice> devices;
    Milliseconds repeat_first{100};  // a question is repeated after this, then doubled up to
    Milliseconds repeat_most{500};
    Milliseconds link_backoff{100};   // a failed link is probed after this, doubled up to 2 s
    std::size_t answers_kept = 1024;  // to the peer's newest questions
    /// Messages are sealed, and taken only with a seal that fits. None: as they come.
    std::optional<Seal::Secrets> secrets{};
  };
  /// Effects. Called from within the Peer's functions; must not call back into it.
  struct Port {
    /// For the poller of our device `device` (index in Options::devices).
    std::function<void(std::size_t device, PollerCommand)> command;
    /// Node-wide unique.
    std::function<LinkId()> new_link;
    /// Exactly one per ask(): the answer (Refused comes as its Error, which then names the node),
    /// or why there is none: kPeerUnreachable after the deadline, the close() error afterwards.
    std::function<void(std::uint64_t token, Result<Answer>)> answered;
    /// The peer asks us (never Hello: the Peer answers that itself). Answer with answer(). It was
    /// asked at `asked_at` or later, and is no repetition of one that was answered;
    /// TimePoint::min(): it may be one. None: an older version, which does not tell.
    std::function<void(std::uint64_t sequence, Question, std::optional<TimePoint> asked_at)> asked;
    /// The handshake is complete (once).
    std::function<void()> up;
    /// Our own inbound cards, for Hello and HelloOk.
    std::function<std::vector<DeviceCards>()> inbound_cards;
    /// Links between our device and the peer's work again, or others do in their place: links()
    /// has more to offer to transfers that lost some. May be left out.
    std::function<void(std::size_t device, const std::string& remote_device)> links_back{};
    /// How one of our cards appears from here, when that changes. May be left out.
    std::function<void(std::size_t device, std::uint16_t nic, CardView, const std::string& why)>
        card_seen{};
  };

  Peer(MemberRecord record, Options options, Port port);

  /// Opens the first control link and says Hello.
  void start(TimePoint now);
  /// Sends the question and repeats it until it is answered or `deadline` passes. Questions asked
  /// before the peer is up wait for the handshake.
  void ask(std::uint64_t token, Question question, TimePoint deadline, TimePoint now);
  /// Answers a question. Only the newest answer per sequence matters.
  void answer(std::uint64_t sequence, Answer answer, TimePoint now);
  /// A message from this incarnation to ours; others are dropped. False: its seal does not fit, and
  /// it was dropped.
  bool receive(Message message, TimePoint now);
  /// The poller said LinkFailed. False: the link is not one of this peer's.
  bool link_failed(LinkId link, const Error& error, TimePoint now);
  /// The poller said LinkStill. The peer is asked over other links whether it lives: if it answers,
  /// the poller is told to cut the link off. If it does not, it is the peer that stands still, and
  /// deadlines deal with that.
  void link_still(LinkId link, TimePoint now);
  /// The poller said NicState: a card of ours is down, or up again.
  void card_is_up(std::size_t device, std::uint16_t nic, bool up, TimePoint now);
  /// Our own inbound endpoint moved: tell the peer.
  void inbound_moved(TimePoint now);
  /// Links between our device and the peer's, opened on first use: max(our cards, their cards)
  /// pairs, (i mod ours, i mod theirs), while all of them work; else as many as can be between
  /// those cards that do (actors/peer/rails.hpp). Links that failed are out until they answered
  /// again, unless nothing is left. kNotFound when there is no such device, kPeerUnreachable when
  /// the peer is not up.
  struct PathCard {
    LinkId link;
    std::uint16_t local_nic;
    std::uint16_t remote_nic;
    std::uint32_t generation;  // of the remote inbound endpoint that the link points at
  };
  Result<std::vector<PathCard>> links(std::size_t device, const std::string& remote_device,
                                      TimePoint now);
  /// The peer's cards after a fence: links are moved where the generation is newer.
  void moved(const std::string& remote_device, const std::vector<InboundCard>& cards,
             TimePoint now);
  /// Ends it: every open question is answered with `error`, every link closed.
  void close(const Error& error);

  void tick(TimePoint now);
  /// When tick() is due next; TimePoint::max() when nothing waits.
  TimePoint next_tick() const;

  const MemberRecord& record() const { return record_; }
  bool is_up() const { return up_; }

 private:
  MemberRecord record_;
  Options options_;
  Port port_;

  struct Asked {
    std::uint64_t token = 0;
    Question question;  // empty for our own Hello, which is written anew each time
    std::vector<std::byte> message;
    TimePoint asked_at;
    TimePoint deadline = TimePoint::max();
    TimePoint sent_at = TimePoint::max();  // max: not yet
    TimePoint due = TimePoint::max();      // when it is sent (again); max: waits for the handshake
    Milliseconds interval{0};
    LinkId link = 0;     // that it went over last
    unsigned tries = 0;  // over that link
  };
  /// A Hello over one link, to see whether it works; not repeated.
  struct Probe {
    std::size_t pair = 0;
    TimePoint sent_at;
    std::optional<LinkId> suspect;  // the link that stands still while this one is asked
  };

  std::uint64_t next_sequence(TimePoint now);
  std::uint32_t version() const { return std::min(options_.wire_version, record_.wire_version); }
  Message message_of(std::uint64_t sequence, std::variant<Question, Answer> body,
                     TimePoint now) const;
  void say_hello(TimePoint now);
  Hello hello_over(Hello::Way way) const;
  void send(std::uint64_t sequence, Asked& asked, TimePoint now);
  void send_due(TimePoint now);
  void expire(TimePoint now);
  std::optional<LinkId> send_over_control(std::vector<std::byte> bytes, TimePoint now);
  void repeat_answer(std::uint64_t sequence, TimePoint now);
  /// `greeting`: a Hello or its answer, which go before challenges are known.
  void send_over(LinkId link, std::vector<std::byte> bytes, bool greeting = false);
  bool fits(const Message& message) const;
  bool answers_ours(const std::vector<std::byte>& challenge) const;
  void hear_challenge(const std::vector<std::byte>& challenge);
  void send_probes(TimePoint now);
  void probe(const PeerLinks::Way& way, std::optional<LinkId> suspect, TimePoint now);
  void probe_answered(std::uint64_t sequence, TimePoint now);
  std::optional<LinkId> way_back(const Hello& hello);
  void tell_changes();
  std::optional<TimePoint> asked_at(const Message& message, TimePoint now) const;
  void receive_question(std::uint64_t sequence, Question question,
                        std::optional<TimePoint> asked_at, TimePoint now);
  void receive_hello(std::uint64_t sequence, const Hello& hello, TimePoint now);
  void receive_answer(std::uint64_t sequence, Answer answer, TimePoint now);
  void learn(const std::vector<DeviceCards>& devices, TimePoint now);

  std::optional<Seal> seal_;
  Seal::Challenge ours_{};    // that the peer's messages must be sealed for
  Seal::Challenge theirs_{};  // as last proved
  PeerLinks links_;
  std::map<std::uint64_t, Asked> asked_;   // by sequence, in the order of asking
  std::map<std::uint64_t, Probe> probes_;  // by sequence
  std::vector<CardView> views_;            // of our cards, as told
  std::string last_trouble_;
  AnsweredQuestions answered_;
  PeerClock clock_;
  TimePoint started_ = TimePoint::max();
  std::uint64_t last_sequence_ = 0;
  std::uint64_t hello_ = 0;  // the sequence of our newest Hello while it is not answered
  TimePoint last_heard_ = TimePoint::min();
  bool up_ = false;
  std::optional<Error> closed_;
};

}  // namespace penstock
