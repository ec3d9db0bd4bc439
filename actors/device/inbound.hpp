// The owner's side: transfers that other nodes run on regions of this device, as pure logic. It
// answers OPEN, FIN and FENCE, counts through the poller, holds leases, and makes the pages quiet
// before it lets go of them.
//
//   open -> done (count full, or FIN) -> forgotten after a while
//   open -> fencing -> open (resumed) | ended
//
// Every answer is repeatable: a question that comes twice gets the same answer.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/clock.hpp"
#include "actors/device/outbound.hpp"
#include "actors/device/region_table.hpp"
#include "actors/device/slots.hpp"
#include "actors/device/staging_pool.hpp"
#include "actors/wire/message.hpp"
#include "transport/poller/command.hpp"
#include "transport/poller/event.hpp"

namespace penstock {

class Inbound {
 public:
  struct Options {
    std::string device;
    FenceKind fence = FenceKind::kReopenInbound;
    bool immediate_data = true;  // every card of the device can deliver immediates
    /// How long an ended transfer still answers by name; longer than any initiator asks
    /// (Outbound::Options::open there), or it could be opened again.
    Milliseconds remember{60000};
    Milliseconds grace_max{2000};  // how long a REVOKE may take before we fence by ourselves
    std::size_t open_most = 1u << 16;
    /// So many of a peer's ended transfers are remembered at most once the peer has said its last
    /// word about them (a Fin, a final Fence): from then on it asks nothing but repetitions, of
    /// which the newest are far fewer.
    std::size_t remember_most = 4096;
    /// Open and remembered ones of all peers: more OPENs are refused until some are forgotten.
    std::size_t known_most = 1u << 18;
    /// Staging slots lent to one transfer.
    std::uint32_t pack_slots_most = 16;
  };
  /// Effects. Called from within Inbound's functions; must not call back into it.
  struct Port {
    std::function<void(PollerCommand)> command;
    std::function<void(Incarnation peer, std::uint64_t sequence, Answer)> answer;
    std::function<void(Incarnation peer, Revoke)> revoke;
    std::function<void(Notification)> notify;
    /// Voids the region's key on one card and registers it anew; rekeyed() follows.
    std::function<void(std::shared_ptr<Region>, std::uint16_t nic)> rekey;
    /// What cards wrote to this region on a GPU is to be made visible to its kernels, now. May be
    /// left out.
    std::function<void(const Region&)> make_visible{};
    /// Whether a client of this node still waits for the third-party transfer. None: nobody asks
    /// others for any.
    std::function<bool(TransferId shadow)> waits_for{};
    /// An own fence ended this inbound transfer (lease over, peer dead, region released).
    std::function<void(Incarnation peer, TransferId, Error)> broken;
  };

  /// `staging` may be null: nothing is packed then.
  Inbound(Options options, std::vector<InboundCard> cards, RegionTable& regions,
          std::shared_ptr<StagingPool> staging, Port port);

  // -- questions of peers ------------------------------------------------------------------------
  /// `credit_links`: ours to the initiator's device, for the credits of packed writes. `asked_at`:
  /// see Peer::Port::asked.
  void open(Incarnation peer, const std::string& node, std::uint64_t sequence, const Open& question,
            std::vector<LinkId> credit_links, std::optional<TimePoint> asked_at, TimePoint now);
  void fin(Incarnation peer, std::uint64_t sequence, const Fin& question, TimePoint now);
  void fence(Incarnation peer, std::uint64_t sequence, const Fence& question, TimePoint now);
  /// A fence from an initiator that never saw our OPEN_OK: nothing was posted.
  void forget(Incarnation peer, TransferId transfer, TimePoint now);
  /// Whoever asked the peer for it here has given it up: what is open is fenced by us and ended.
  void give_up(Incarnation peer, TransferId shadow, const Error& error, TimePoint now);

  // -- what happens ------------------------------------------------------------------------------
  void counted(std::uint32_t immediate, TimePoint now);
  void disarmed(std::uint64_t tag, TimePoint now);
  void reopened(const InboundReopened& event, TimePoint now);
  void rekeyed(const std::string& region, std::uint16_t nic, TimePoint now);
  /// The peer is gone or silent: its transfers here are fenced by us and ended.
  void peer_down(Incarnation peer, const Error& error, TimePoint now);
  /// The region is being released with force: initiators are asked to stop, then fenced.
  void revoke(const std::string& region, TimePoint now);
  /// OPENs are refused from now on.
  void drain() { draining_ = true; }

  void tick(TimePoint now);
  TimePoint next_tick() const;

  const std::vector<InboundCard>& cards() const { return cards_; }
  std::size_t open_count() const { return open_; }
  /// Whether the peer may still touch our pages for the third-party transfer.
  bool is_open_for(Incarnation peer, TransferId shadow) const;
  /// Open ones, and those that ended and still answer by name.
  std::size_t known_count() const { return transfers_.size(); }
  /// Of which the order of last words is kept.
  std::size_t known_peers() const { return last_words_.size(); }

 private:
  using Key = std::pair<Incarnation, TransferId>;
  /// Memory of ours that a peer has keys for.
  struct Handed {
    std::shared_ptr<Region> region;
    std::vector<std::weak_ptr<MemoryRegistration>> keys;  // by card
    /// Whether a key that the peer has for this card still opens it.
    bool holds_key(std::uint16_t nic) const { return nic < keys.size() && !keys[nic].expired(); }
  };
  using Rekeying = std::set<std::pair<std::shared_ptr<Region>, std::uint16_t>>;  // card
  enum class State : unsigned char { kOpen, kFencing, kDone, kEnded };
  struct Transfer {
    State state = State::kOpen;
    std::string node;
    RegionUse region;
    Direction direction = Direction::kWrite;
    std::optional<std::uint32_t> immediate;
    OpenOk answer;
    std::string notify;
    TransferId stream = 0;  // for the notification
    std::uint32_t part = 0;
    TransferId shadow = 0;
    std::uint64_t bytes = 0;
    TimePoint due;                     // lease while open; when to forget once ended
    std::vector<Handed> handed;        // the region, and the staging memory when slots are lent
    std::vector<StagingSlot> lent;     // of the staging memory
    bool staged = false;               // nothing goes directly
    bool inlined = false;              // its data came with the question
    std::vector<LinkId> credit_links;  // of a staged one: it gets its slots again after a fence
    // While fencing:
    std::set<std::uint16_t> reopening;  // cards
    Rekeying rekeying;
    std::uint64_t disarming = 0;            // the tag of the order to scatter nothing more
    std::optional<std::uint64_t> sequence;  // who asked; none: our own fence
    bool final = true;
    std::optional<Error> cause;  // of our own fence
    bool last_word = false;      // the initiator asks nothing more about it
  };

  void take_inline(const Key& key, const std::string& node, std::uint64_t sequence,
                   const Open& question, RegionUse use, TimePoint now);
  bool may_be_over(const Open& question, TimePoint asked_at, TimePoint now) const;
  void erase(std::map<Key, Transfer>::iterator transfer);
  void set_due(const Key& key, Transfer& transfer, TimePoint due);
  void done(const Key& key, Transfer& transfer, TimePoint now);
  void count_open();
  void count_ended();
  void last_word(const Key& key, Transfer& transfer, TimePoint now);
  void end(const Key& key, Transfer& transfer, TimePoint now);
  void free_slots(Transfer& transfer);
  void start_fence(const Key& key, Transfer& transfer, const std::vector<Fence::Card>& cards,
                   TimePoint now);
  void void_key(Transfer& transfer, std::uint16_t nic);
  void own_fence(const Key& key, Transfer& transfer, Error cause, TimePoint now);
  void fence_complete(const Key& key, Transfer& transfer, TimePoint now);
  void complete_fences(TimePoint now);
  static Error cause_of(const Transfer& transfer);
  /// The keys of `region` as they are now, for an answer to the transfer's initiator.
  std::vector<RegionKey> hand_keys(Transfer& transfer, std::shared_ptr<Region> region) const;
  std::optional<LentStaging> lend(Transfer& transfer, std::uint32_t slots);
  std::optional<Error> cannot_stage(const Open& question, const Region& region,
                                    const std::vector<LinkId>& credit_links) const;
  void arm_slots(TransferId id, const Transfer& transfer, std::vector<LinkId> credit_links);
  std::optional<LentStaging> lend_again(TransferId id, Transfer& transfer);
  void let_go(Transfer& transfer);
  static bool quiet(const Transfer& transfer) {
    return transfer.reopening.empty() && transfer.rekeying.empty() && transfer.disarming == 0;
  }

  Options options_;
  std::vector<InboundCard> cards_;
  RegionTable& regions_;
  std::shared_ptr<StagingPool> staging_;
  Port port_;
  Slots slots_;
  std::map<Key, Transfer> transfers_;
  std::unordered_map<std::uint32_t, Key> by_immediate_;
  std::set<std::pair<TimePoint, Key>> due_;
  std::map<Incarnation, std::deque<TransferId>> last_words_;  // oldest first
  std::set<std::uint16_t> reopening_;
  Rekeying rekeying_;
  std::map<std::uint64_t, Key> disarming_;  // by tag
  std::uint64_t next_tag_ = 1;
  std::size_t open_ = 0;
  bool draining_ = false;
};

}  // namespace penstock
