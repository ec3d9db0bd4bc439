// Who is there: SWIM with suspicion, as a pure state machine. Time, randomness and the network are
// passed in. docs/membership.md tells how it works and what it costs.
//
// Each period a node asks one other whether it is there, by itself and then through others. Whoever
// answers nobody is suspect, has time to contradict, and is dead after that. What changes travels
// as passenger of the frames that are sent anyway; what got lost is found by comparing whole tables
// now and then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/clock.hpp"
#include "actors/membership/dissemination.hpp"
#include "actors/membership/gossip_frame.hpp"
#include "actors/membership/local_health.hpp"
#include "actors/membership/member.hpp"
#include "actors/membership/member_table.hpp"
#include "actors/membership/seeds.hpp"

namespace penstock {

class Swim {
 public:
  struct Options {
    std::vector<std::string> seeds;  // gossip endpoints of others, as configured
    Milliseconds period{200};        // one member is asked in each
    Milliseconds probe_timeout{80};  // then others are asked to ask it, until the period ends
    std::size_t indirect_probes = 3;
    /// What a suspect has to contradict: the shortest, when enough others have confirmed; the first
    /// accuser alone waits `suspicion_longest` times as long. Grows with log10 of the cluster above
    /// 1,000 nodes.
    Milliseconds suspicion{1000};
    unsigned suspicion_longest = 6;
    std::size_t confirmations = 3;
    Milliseconds closed_grace{400};  // what a suspect() member has left to answer
    double retransmit = 3;           // a rumour is sent this times ln(nodes + 1) by each node
    std::size_t frame_bytes = 1400;  // with the rumours on board
    Milliseconds push_pull{10000};   // tables are compared with a random member's
    std::chrono::seconds forget_dead{600};
    std::size_t most_members = 16384;  // what strangers can make us remember
    bool lifeguard = true;             // false: plain SWIM, for comparison
    std::uint64_t seed = 0;
  };
  struct Network {
    /// Sends one datagram-like frame to a gossip endpoint; may be lost.
    std::function<void(const std::string& endpoint, GossipFrame frame)> send;
    /// Nothing more goes to this endpoint for now; optional.
    std::function<void(const std::string& endpoint)> forget{};
    /// Looks a seed up and calls resolved() some time; absent: seeds are endpoints.
    std::function<void(const std::string& seed)> resolve{};
  };
  struct Counters {
    std::uint64_t malformed_frames = 0;
    /// A newer process was seen under our own name at another endpoint: two nodes are configured
    /// with the same name. Never fought over; whoever reads this should complain.
    std::uint64_t duplicate_names = 0;
    std::uint64_t accusations = 0;  // a member that we asked did not answer us: it is suspected
    std::uint64_t refutations = 0;  // we were suspected, and contradicted
    std::uint64_t burials = 0;      // members that we declared dead by ourselves
  };

  /// `self` must be a record that store_record accepts.
  Swim(MemberRecord self, Options options, Network network);

  /// A frame arrived. Malformed frames are dropped and counted.
  void receive(std::span<const std::byte> bytes, TimePoint now);
  void receive(const GossipFrame& frame, TimePoint now);
  /// Sends what is due; call it at next_tick().
  void tick(TimePoint now);
  TimePoint next_tick() const;
  /// What a seed's name stands for now.
  void resolved(const std::string& seed, std::vector<std::string> endpoints, TimePoint now);

  /// Tells the others that this node takes no new work.
  void drain(TimePoint now);
  /// Tells the others that this node leaves. Says and hears nothing after that.
  void leave(TimePoint now);
  /// A closed connection was seen by the data plane: ask at once instead of in its turn.
  void suspect(const std::string& node, TimePoint now);
  /// The same where only its gossip endpoint is known.
  void suspect_at(const std::string& endpoint, TimePoint now);
  /// An operator says that a member is gone for good under its incarnation; one that answers only
  /// with `force`.
  Result<void> remove(const std::string& node, bool force, TimePoint now);
  void set_load(std::uint32_t load) { load_ = load; }

  /// Changes since the last call, in order. A member that ended before it was ever seen alive makes
  /// none.
  std::vector<MemberChange> take_changes() { return std::exchange(changes_, {}); }
  /// Everybody but ourselves, by name.
  std::vector<MemberChange> members() const;
  const Counters& counters() const { return counters_; }
  int local_health() const { return health_.score(); }
  /// Others hold us for gone (an operator removed us, or another process took our endpoint): only a
  /// restart brings this node back.
  bool removed() const { return removed_; }
  /// An earlier run of this node had a later clock, and so this incarnation (0: none had): for the
  /// others this run is older than what they know, and they do not take it in. Only a run with a
  /// higher incarnation comes in.
  Incarnation outrun_by() const { return outrun_by_; }

 private:
  using Index = MemberTable::Index;
  static constexpr Index kNone = MemberTable::kNone;

  /// A question that waits for its answer.
  struct Probe {
    Index member = kNone;
    Incarnation incarnation = 0;
    std::uint32_t sequence = 0;
    bool closed = false;  // after suspect(): dead at once when it stays silent, see conclude()
    TimePoint again;      // asked once more then
    TimePoint helpers_at;
    TimePoint ends;
    std::vector<Index> helpers;
    std::size_t nacks = 0;
  };
  /// A question that we put for somebody else.
  struct Relay {
    std::uint32_t sequence = 0;
    IdentityPtr asker;
    std::uint32_t asker_sequence = 0;
    TimePoint nack_at;
    TimePoint ends;
  };
  struct Wanted {
    Index member = kNone;
    Incarnation incarnation = 0;
    IdentityPtr teller;
    unsigned tries = 0;
    TimePoint next;
  };

  // swim_knowledge.cpp: what is known, and what changes it
  void learn(Rumor rumor, const IdentityPtr& teller, bool tabled, TimePoint now);
  void admit(Rumor rumor, Index replaced, const IdentityPtr& teller, bool tabled, TimePoint now);
  void update(Index index, Rumor rumor, const IdentityPtr& teller, bool tabled, TimePoint now);
  bool was_away(const Identity& teller, TimePoint now) const;
  bool spoke_lately(const Member& member, TimePoint now) const;
  void was_cut_off(TimePoint now);
  void apply(Index index, const Rumor& rumor, std::string reason, TimePoint now);
  void about_self(const Rumor& rumor, TimePoint now);
  void change_self(const Rumor& changed, TimePoint now);
  void suspect_by(Index index, std::uint32_t accuser, TimePoint now);
  bool wants_second_opinion();
  void raise_suspicion(Index index, std::uint32_t accuser, TimePoint now);
  void confirm(Index index, std::uint32_t accuser, TimePoint now);
  void drop_suspicion(Index index);
  void bury(TimePoint now);
  void tell(Index index, const std::string& reason);
  void emit(const Member& member, MemberState state, std::string reason, bool gone);

  // swim.cpp: time, and what is passed on
  void spread(const Rumor& rumor, TimePoint now);
  void gossip(TimePoint now);
  void forget_ended(TimePoint now);
  void stood_still(Clock::duration time);
  void start(TimePoint now);
  void send(const std::string& endpoint, GossipBody body, const Rumor* first = nullptr);
  void send_bulk(const std::string& endpoint, GossipBody body, std::vector<Rumor> rumors = {});
  std::optional<Rumor> held_against(const Rumor& sender, TimePoint now) const;
  Rumor suspicion_of(const Member& member, std::uint32_t accuser) const;
  std::size_t sends() const;
  MemberState state_of(const Member& member) const;
  Seeds::Alive alive() const;

  // swim_frames.cpp: each kind of frame
  void receive_from_own_name(const GossipFrame& frame, TimePoint now);
  void on(const GossipFrame& frame, const Gossip& gossip, TimePoint now);
  void on(const GossipFrame& frame, const Ping& ping, TimePoint now);
  void on(const GossipFrame& frame, const Ack& ack, TimePoint now);
  void on(const GossipFrame& frame, const PingRequest& request, TimePoint now);
  void on(const GossipFrame& frame, const Nack& nack, TimePoint now);
  void on(const GossipFrame& frame, const Compare& compare, TimePoint now);
  void on(const GossipFrame& frame, const Table& table, TimePoint now);
  void on(const GossipFrame& frame, const Fetch& fetch, TimePoint now);
  void on(const GossipFrame& frame, const Records& records, TimePoint now);

  // swim_probe.cpp: asking
  void start_period(TimePoint now);
  void ask(Index index, bool closed, TimePoint now);
  void ping(Index index, std::uint32_t sequence);
  void ask_helpers(Probe& probe);
  void drive_probes(TimePoint now);
  bool may_be_dead(Index index) const;
  void conclude(const Probe& probe, TimePoint now);
  void drive_relays(TimePoint now);
  bool still_concerns(const Probe& probe) const;
  std::uint32_t next_sequence();
  Clock::duration scaled(Milliseconds time) const;

  // swim_tables.cpp: comparing tables, records, seeds
  void push_pull(TimePoint now);
  void reconnect(TimePoint now);
  void knock(const std::string& seed, TimePoint now);
  void send_tables(const std::string& to, const std::string& endpoint, std::uint64_t buckets,
                   std::uint64_t wanted, std::optional<Rumor> first, TimePoint now);
  void want_record(Index index, const IdentityPtr& teller, TimePoint now);
  void fetch(TimePoint now);
  const std::string* holder(Wanted& wanted);

  Options options_;
  Network network_;
  RecordPtr record_;
  Rumor self_;
  std::uint32_t accuser_ = 0;  // how we sign suspicions
  std::uint32_t load_ = 0;
  std::mt19937_64 random_;
  MemberTable table_;
  Dissemination queue_;
  LocalHealth health_;
  Seeds seeds_;
  std::vector<Probe> probes_;
  std::vector<Relay> relays_;
  std::vector<Wanted> wanted_;
  std::set<std::pair<TimePoint, Index>> deadlines_;  // of suspicions
  std::uint32_t sequence_ = 0;
  bool started_ = false;
  TimePoint next_period_;
  TimePoint next_push_pull_;
  TimePoint next_reconnect_;
  TimePoint next_sweep_;
  TimePoint next_knock_;
  TimePoint next_gossip_ = TimePoint::max();
  TimePoint last_gossip_;
  TimePoint next_fetch_ = TimePoint::max();
  std::vector<MemberChange> changes_;
  Counters counters_;
  bool left_ = false;
  bool removed_ = false;
  Incarnation outrun_by_ = 0;
};

}  // namespace penstock
