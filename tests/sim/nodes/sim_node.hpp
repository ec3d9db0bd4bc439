// A node of Penstock without threads, actors and clients: one device with simulated cards, a real
// PollerLoop, and the real Outbound, Inbound and Peers, glued as device_actor, peer_actor and
// node_actor glue them. Messages between them wait in mailboxes and are handled in an order that
// the simulation's seed decides.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/device/inbound.hpp"
#include "actors/device/live_shadows.hpp"
#include "actors/device/outbound.hpp"
#include "actors/device/region_table.hpp"
#include "actors/nic/card_health.hpp"
#include "actors/peer/peer.hpp"
#include "tests/sim/late_mover.hpp"
#include "tests/sim/late_nic.hpp"
#include "transport/poller/poller.hpp"

namespace penstock::sim {

struct SimNodeOptions {
  std::string name;
  Incarnation incarnation = 0;
  /// What its clock is ahead of the network's: those of two machines have nothing in common.
  Clock::duration clock{0};
  std::size_t cards = 2;
  SimNicOptions nic;
  /// The cards' addresses, as this many processes that run one after the other at the same ports
  /// have them: (control, inbound) by card. Empty: new ones.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> addresses{};
  /// Makes another kind of card than a LateNic with the options above. May be left out.
  std::function<std::unique_ptr<Nic>(std::size_t card)> make_card{};
  /// What the doorbell and the actors behind it take until an event is handled.
  std::chrono::nanoseconds actor_delay{0};
  PollerOptions poller;
  Outbound::Options outbound;
  Inbound::Options inbound;
  /// Staging memory: slots to send from, and slots to lend. 0: nothing is packed.
  std::uint64_t slot_bytes = 1024;
  std::uint64_t send_slots = 4;
  std::uint64_t lent_slots = 12;
  /// Regions are in memory of a GPU that no card reaches.
  bool on_gpu = false;
  LateMoverOptions mover;
  /// A scratch region, which new peers are warmed up with.
  std::uint64_t scratch_bytes = 0;
  std::chrono::milliseconds release_look{20};
  /// Peer::Options::answers_kept
  std::size_t answers_kept = 1024;
  std::shared_ptr<LiveShadows> shadows = std::make_shared<LiveShadows>();
};

/// What a node tells its clients.
struct SimNodeObserver {
  std::function<void(TransferResult)> ended;
  std::function<void(Notification)> notified;
  std::function<void(Incarnation, TransferId)> broken;
  std::function<void(const std::string& region)> released;
  // May be left out:
  std::function<void(const std::string& node)> trouble{};      // a link to it failed
  std::function<void(const std::string& from)> drain_asked{};  // another node asks this one to
  std::function<void(const std::string& node)> connected{};
  // What peers ask of the node as a whole, and what they answer to ask_for_node().
  std::function<void(const std::string& from, Incarnation peer, std::uint64_t sequence,
                     const Question&)>
      node_asked{};
  std::function<void(std::uint64_t token, const Result<Answer>&)> node_answered{};
};

class SimNode {
 public:
  SimNode(Wire& wire, SimNodeOptions options, SimNodeObserver observer);
  ~SimNode();
  SimNode(const SimNode&) = delete;
  SimNode& operator=(const SimNode&) = delete;

  // -- what clients ask --------------------------------------------------------------------------
  void add_region(const std::string& name, std::span<std::byte> memory);
  RegionTable& regions() { return regions_; }
  /// Its deadline, as all that comes from outside, by the network's clock.
  void admit(Admitted admitted);
  void cancel(TransferId transfer);
  /// What the peer has open here for the third-party transfer is fenced.
  void give_up(Incarnation peer, TransferId shadow, const Error& error);
  void release_by_force(const std::string& region);

  // -- what membership tells ---------------------------------------------------------------------
  MemberRecord record() const;
  void meet(const MemberRecord& record);
  void part(Incarnation peer, const Error& error, bool gone);
  /// Also of one that was parted from before: what was kept for its return goes.
  void part(const MemberRecord& record, const Error& error, bool gone);
  /// OPENs are refused from now on.
  void refuse_opens() {
    to_device([this] { inbound_->drain(); });
  }
  void ask_to_drain(Incarnation peer);
  /// False: it is not there. With token 0 nobody hears the answer.
  bool ask_for_node(Incarnation peer, std::uint64_t token, const Question& question,
                    TimePoint deadline);
  void answer_for_node(Incarnation peer, std::uint64_t sequence, Answer answer);
  bool knows(Incarnation peer) const { return peers_.contains(peer); }

  // -- simulation --------------------------------------------------------------------------------
  /// Handles what waits, a little of each kind; returns how much happened.
  std::size_t step();
  /// The machine goes out: nothing of it moves any more.
  void crash();
  /// A step may do something; otherwise only time, an arrival or a call from outside can.
  bool restless();
  bool crashed() const { return crashed_; }
  LateNic& nic(std::size_t i) { return *late_nics_.at(i); }  // not those of make_card
  std::size_t cards() const { return nics_.size(); }

  const Outbound& outbound() const { return *outbound_; }
  const Inbound& inbound() const { return *inbound_; }
  const StagingPool* staging() const { return staging_.get(); }
  const CardHealth& health(std::size_t card) const { return health_.at(card); }

 private:
  using Mailbox = std::deque<std::function<void()>>;
  struct PeerActor;
  struct Release {
    std::shared_ptr<Region> region;
  };

  TimePoint now() const { return wire_.network.now() + options_.clock; }
  std::unique_ptr<Nic> make_card(std::size_t i);
  Outbound::Port outbound_port();
  Inbound::Port inbound_port();
  Peer::Port peer_port(const std::shared_ptr<PeerActor>& actor);
  void to_device(std::function<void()> message) { device_mail_.push_back(std::move(message)); }
  void to_peer(const std::shared_ptr<PeerActor>& actor, std::function<void(Peer&)> message);
  std::shared_ptr<PeerActor> peer_of(Incarnation peer) const;
  void ask(Incarnation peer, std::uint64_t token, Question question, TimePoint deadline);
  void asked(const std::shared_ptr<PeerActor>& actor, std::uint64_t sequence, Question question,
             std::optional<TimePoint> at);
  void to_owner(PeerActor& actor, std::uint64_t sequence, Question question,
                std::vector<LinkId> links, std::optional<TimePoint> at);
  std::shared_ptr<Region> make_region(const std::string& name, std::span<std::byte> memory,
                                      bool on_gpu);
  void open_staging();
  void warm_up(const MemberRecord& record);
  void settle(const std::shared_ptr<PeerActor>& actor);
  void schedule();
  void look_at_releases();
  std::size_t step_poller();

  void happened(QuantumDone& event);
  void happened(TransferIdle& event);
  void happened(ImmediateComplete& event);
  void happened(LinkFailed& event);
  void happened(InboundReopened& event);
  void happened(NicState& event);
  void happened(LinkStill& event);
  void happened(PackedDisarmed& event);
  void happened(MessageReceived& event);

  Wire& wire_;
  SimNodeOptions options_;
  SimNodeObserver observer_;
  bool crashed_ = false;
  std::vector<Nic*> nics_;
  std::vector<LateNic*> late_nics_;
  LateMover* mover_ = nullptr;
  std::unique_ptr<PollerLoop> poller_;
  std::deque<PollerCommand> commands_;
  std::vector<std::byte> staging_memory_;
  std::vector<std::byte> scratch_memory_;
  std::shared_ptr<StagingPool> staging_;
  RegionTable regions_;
  std::vector<InboundCard> shared_cards_;  // as LocalDevice::inbound holds them for Hello
  std::unique_ptr<Outbound> outbound_;
  std::unique_ptr<Inbound> inbound_;
  Mailbox device_mail_;
  std::map<Incarnation, std::shared_ptr<PeerActor>> peers_;         // the node actor's view
  std::map<Incarnation, std::shared_ptr<PeerActor>> device_peers_;  // the device actor's
  std::vector<std::shared_ptr<PeerActor>> actors_;
  std::vector<Release> releases_;
  std::vector<CardHealth> health_;
  LinkId last_link_ = 0;
  TimePoint ticking_ = TimePoint::max();
  TimePoint retrying_ = TimePoint::max();
  bool rang_ = false;
};

}  // namespace penstock::sim
