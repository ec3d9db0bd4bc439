// The links to one peer: every pair (local card, remote card), opened on first use, moved when the
// remote inbound endpoint moved. A control link and a data link of the same pair are the same link.
//
// A link that failed is out until a Hello over exactly this link was answered. Such probes go out
// after 100 ms, then at growing intervals, and only while something is out: over what is out, and
// over the pairs that could take its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/clock.hpp"
#include "actors/membership/member.hpp"
#include "actors/peer/rails.hpp"
#include "actors/wire/message.hpp"
#include "transport/poller/command.hpp"

namespace penstock {

/// A local card as one peer lets it appear.
enum class CardView : unsigned char {
  kUnknown,  // not used towards this peer
  kWorks,
  kOut,  // none of its links answers, while the peer does over other cards
};

class PeerLinks {
 public:
  struct LocalCard {
    std::size_t device = 0;  // its index among our devices
    std::uint16_t nic = 0;
  };
  struct Effects {
    std::function<void(std::size_t device, PollerCommand)> command;
    std::function<LinkId()> new_link;
  };
  /// A data link as it points now.
  struct DataLink {
    LinkId link = 0;
    LocalCard local;
    std::uint16_t remote_nic = 0;
    std::uint32_t generation = 0;
  };
  /// A pair by its number, with the link that is open between its cards.
  struct Way {
    std::size_t pair = 0;
    LinkId link = 0;
  };

  PeerLinks(std::vector<LocalCard> local, std::vector<MemberCard> remote, Milliseconds backoff,
            Effects effects);

  // -- control -----------------------------------------------------------------------------------
  /// The link that messages go over now: the last one while it works, else the next pair that is
  /// not out; when every pair is, one whose probe is due. Else none, until unblocked_at().
  std::optional<LinkId> control(TimePoint now);
  /// Our device that an open link belongs to.
  std::size_t device_of(LinkId link) const;
  /// This link gave no sign of life: if it still is the control link, the next message takes
  /// another.
  void rotate_from(LinkId link);
  /// Whatever the control link is: the next message takes another.
  void rotate();
  /// When control() has a link again; max() when there is no pair at all.
  TimePoint unblocked_at() const;
  /// The link between these two cards, opened when it is not; none when there is no such pair.
  std::optional<LinkId> between(LocalCard local, const std::string& remote_device,
                                std::uint16_t remote_nic);

  // -- data --------------------------------------------------------------------------------------
  /// The links to use between our device and the peer's: the rails of what works. When nothing
  /// does, of everything. Empty when there is no such device, or its inbound addresses are not
  /// known.
  std::vector<DataLink> rails(std::size_t device, const std::string& remote_device);

  // -- facts -------------------------------------------------------------------------------------
  /// Where the peer's cards take writes now. Older generations and cards that its member record
  /// does not name are ignored; links to newer ones are moved, and probed at once when out.
  void learn(const std::string& device, const std::vector<InboundCard>& cards, TimePoint now);
  /// False: not one of these links.
  bool failed(LinkId link, TimePoint now);
  /// A Hello over exactly this pair was answered.
  void answered(std::size_t pair, TimePoint now);
  /// The poller could not open the card's outbound endpoint again, or could.
  void card_is_up(LocalCard card, bool up);
  /// The handshake is complete: from now on a link id stays as long as it works at all, since
  /// transfers hold it.
  void keep_open() { keep_open_ = true; }
  void close();

  // -- probes ------------------------------------------------------------------------------------
  /// Ways to say Hello over now.
  std::vector<Way> due_probes(TimePoint now);
  TimePoint next_probe() const;
  /// Some other ways between the same two devices, to see whether the peer lives at all.
  std::vector<Way> witnesses(LinkId link);
  /// The cards of a pair as a Hello names them; from_device is for the caller to fill in.
  Hello::Way way_of(std::size_t pair) const;
  LocalCard local_of(std::size_t pair) const { return local_[pair % local_.size()]; }

  // -- what changed ------------------------------------------------------------------------------
  /// Devices (ours, theirs) between which links came back since the last call.
  std::set<std::pair<std::size_t, std::string>> take_returns() {
    return std::exchange(returns_, {});
  }
  CardView view_of(LocalCard card) const;

 private:
  struct Remote {
    MemberCard card;
    std::uint32_t generation = 0;  // 0: not told yet
    FabricAddress inbound;
  };
  struct Pair {
    std::optional<LinkId> link;
    std::uint32_t generation = 0;  // that the link points at; 0: control only
    bool reopen = false;           // before the next use
    bool out = false;
    bool used = false;                // by data
    bool proven = false;              // answered, and has not failed since
    unsigned failures = 0;            // in a row
    bool failed_since_probe = false;  // counts once
    unsigned unanswered = 0;          // probes
    Milliseconds backoff{0};
    Milliseconds wait{0};  // after the next probe
    TimePoint probe_at = TimePoint::max();
    std::optional<TimePoint> back_at;
  };
  /// The cards of our device and of theirs, as places in local_ and remote_.
  struct Block {
    std::vector<std::size_t> ours;
    std::vector<std::size_t> theirs;
  };

  std::size_t pair_count() const { return local_.size() * remote_.size(); }
  /// Neighbours in this order share neither card where there are several on both sides.
  std::size_t remote_of(std::size_t pair) const {
    return (pair % local_.size() + pair / local_.size()) % remote_.size();
  }
  std::size_t pair_of(std::size_t local, std::size_t remote) const;
  std::optional<std::size_t> pair_of_link(LinkId link) const;
  Block block_of(std::size_t device, const std::string& remote_device) const;
  Block block_around(std::size_t pair) const;
  std::optional<std::size_t> place_of(LocalCard card) const;
  bool works(std::size_t pair) const { return !pairs_[pair].out && card_up_[pair % local_.size()]; }
  void probe_replacements(std::size_t pair, TimePoint now);
  void returned(std::size_t pair);
  LinkId open(std::size_t pair);
  void close_link(std::size_t pair);
  /// Points an open link at the newest generation of its remote card.
  void point(std::size_t pair, TimePoint now);

  std::vector<LocalCard> local_;
  std::vector<bool> card_up_;  // by place in local_
  std::vector<Remote> remote_;
  Milliseconds backoff_;
  Effects effects_;
  std::vector<Pair> pairs_;
  std::set<std::pair<std::size_t, std::string>> returns_;
  std::size_t control_ = 0;
  std::size_t turn_ = 0;  // of witnesses
  bool keep_open_ = false;
};

}  // namespace penstock
