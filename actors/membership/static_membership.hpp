// Membership from a static list of gossip endpoints: announce to each until it answers, then keep
// in touch by heartbeat. A pure state machine: time, randomness and network are passed in. Gossip
// (SWIM) takes its place behind the same three functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "actors/clock.hpp"
#include "actors/membership/gossip_frame.hpp"
#include "actors/membership/member.hpp"

namespace penstock {

class StaticMembership {
 public:
  struct Options {
    std::vector<std::string> endpoints;  // the others' gossip endpoints, as configured
    Milliseconds heartbeat{500};
    Milliseconds dead_after{3000};
    Milliseconds suspect_for{500};  // what a suspect() member has left to answer
    std::uint64_t seed = 0;
  };
  struct Network {
    /// Sends one datagram-like frame to a gossip endpoint; may be lost.
    std::function<void(const std::string& endpoint, std::vector<std::byte> frame)> send;
  };

  StaticMembership(MemberRecord self, Options options, Network network);

  /// A frame arrived. Malformed frames are dropped and counted.
  void receive(std::span<const std::byte> frame, TimePoint now);
  /// Sends what is due; call it at next_tick().
  void tick(TimePoint now);
  TimePoint next_tick() const;
  /// Tells the others that this node leaves.
  void leave(TimePoint now);
  /// A closed connection was seen by the data plane: ask at once instead of waiting for silence.
  void suspect(const std::string& node, TimePoint now);

  /// Changes since the last call, in order. A member that left before it was ever seen alive makes
  /// none.
  std::vector<MemberChange> take_changes();
  std::vector<MemberChange> members() const;
  std::uint64_t malformed_frames() const { return malformed_frames_; }

  /// How often a newer process was seen under our own name at another endpoint: two nodes are
  /// configured with the same name. Never fought over; whoever reads this should complain.
  std::uint64_t duplicate_names() const { return duplicate_names_; }

 private:
  struct Member {
    MemberRecord record;  // only node and incarnation while nothing else was announced
    MemberState state = MemberState::kAlive;
    std::string reason;
    TimePoint last_heard;
    TimePoint suspect_until =
        TimePoint::max();  // dead then unless heard before; max: not suspected
    TimePoint next_heartbeat;
  };
  /// A configured endpoint: knocked at until its node answers, and again when that is dead.
  struct Contact {
    std::string endpoint;
    std::string node;  // who answered last; "" nobody yet
    TimePoint next_knock = TimePoint::min();
    Milliseconds interval{0};
  };

  void receive_announce(const Announce& announce, TimePoint now);
  void receive_heartbeat(const Heartbeat& heartbeat, TimePoint now);
  void receive_leave(const Leave& leave);
  /// The member that this incarnation makes of what was known; null when it is an old one.
  Member* admit(const MemberRecord& record, TimePoint now);
  void heard(Member& member, TimePoint now);
  bool own_name(const std::string& node, Incarnation incarnation, const std::string& endpoint);
  bool replaced_at_its_endpoint(const MemberRecord& record) const;
  void replace_at_its_endpoint(const MemberRecord& record);
  void change(Member& member, MemberState state, std::string reason, bool replaced = false);
  void announce_to(const std::string& endpoint, bool reply, const std::string& knocked);
  void heartbeat_to(const Member& member, bool reply);
  void knock(TimePoint now);
  void bury(TimePoint now);
  void beat(TimePoint now);
  bool quiet(const Contact& contact) const;
  const std::string& endpoint_of(const Member& member) const;
  TimePoint death_of(const Member& member) const;
  Clock::duration jittered(Milliseconds interval);

  MemberRecord self_;
  Options options_;
  Network network_;
  std::mt19937_64 random_;
  std::map<std::string, Member> members_;
  std::vector<Contact> contacts_;
  std::vector<MemberChange> changes_;
  std::uint64_t malformed_frames_ = 0;
  std::uint64_t duplicate_names_ = 0;
  bool left_ = false;
};

}  // namespace penstock
