// The links to one peer: every pair (local card, remote card), opened on first use, kept out of use
// for a while after a failure, moved when the remote inbound endpoint moved. A control link and a
// data link of the same pair are the same link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/clock.hpp"
#include "actors/membership/member.hpp"
#include "actors/wire/message.hpp"
#include "transport/poller/command.hpp"

namespace penstock {

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
    bool blocked = false;
  };

  PeerLinks(std::vector<LocalCard> local, std::vector<MemberCard> remote, Milliseconds backoff,
            Effects effects);

  // -- control -----------------------------------------------------------------------------------
  /// The link that messages go over now: the last one while it works, else the next pair that is
  /// not blocked. None while every pair is blocked, until unblocked_at().
  std::optional<LinkId> control(TimePoint now);
  /// Our device that an open link belongs to.
  std::size_t device_of(LinkId link) const;
  /// This link gave no sign of life: if it still is the control link, the next message takes
  /// another.
  void rotate_from(LinkId link);
  /// When control() has a link again; max() when there is no pair at all.
  TimePoint unblocked_at() const;

  // -- data --------------------------------------------------------------------------------------
  /// The link from our card to the peer's, opened when it is not. Empty when the peer's card or its
  /// inbound address is not known.
  std::optional<DataLink> data(LocalCard local, const std::string& remote_device,
                               std::uint16_t remote_nic, TimePoint now);
  /// The cards of a remote device whose inbound address is known, by place.
  std::vector<std::uint16_t> remote_nics(const std::string& device) const;

  // -- facts -------------------------------------------------------------------------------------
  /// Where the peer's cards take writes now. Older generations and cards that its member record
  /// does not name are ignored; links to newer ones are moved.
  void learn(const std::string& device, const std::vector<InboundCard>& cards);
  /// False: not one of these links.
  bool failed(LinkId link, TimePoint now);
  /// The handshake is complete: from now on a link id stays as long as it works at all, since
  /// transfers hold it.
  void keep_open() { keep_open_ = true; }
  void close();

 private:
  struct Remote {
    MemberCard card;
    std::uint32_t generation = 0;  // 0: not told yet
    FabricAddress inbound;
  };
  struct Pair {
    std::optional<LinkId> link;
    std::uint32_t generation = 0;  // that the link points at; 0: control only
    unsigned failures = 0;         // in a row
    bool reopen = false;           // before the next use
    TimePoint blocked_until = TimePoint::min();
    Milliseconds backoff{0};
  };

  std::size_t pair_count() const { return local_.size() * remote_.size(); }
  /// Neighbours in this order share neither card where there are several on both sides.
  LocalCard local_of(std::size_t pair) const { return local_[pair % local_.size()]; }
  std::size_t remote_of(std::size_t pair) const {
    return (pair % local_.size() + pair / local_.size()) % remote_.size();
  }
  void rotate();
  LinkId open(std::size_t pair);
  void close_link(std::size_t pair);
  /// Points an open link at the newest generation of its remote card.
  void point(std::size_t pair);

  std::vector<LocalCard> local_;
  std::vector<Remote> remote_;
  Milliseconds backoff_;
  Effects effects_;
  std::vector<Pair> pairs_;
  std::size_t control_ = 0;
  bool keep_open_ = false;
};

}  // namespace penstock
