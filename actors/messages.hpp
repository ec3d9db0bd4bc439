// Every message that actors of one node send each other. Big or move-only parts travel by
// shared_ptr; nothing here leaves the process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/caf.hpp"
#include "actors/device/outbound.hpp"
#include "actors/gateway/gateway.hpp"
#include "actors/membership/member.hpp"
#include "actors/peer/peer.hpp"
#include "actors/protocol/reply.hpp"
#include "actors/wire/message.hpp"

namespace penstock {

// -- to the node actor ---------------------------------------------------------------------------

struct ClientRequest {
  ClientId client;
  std::shared_ptr<Request> request;
};
/// Something was to be sent to this client, and its connection is gone.
struct ClientGone {
  ClientId client;
};
struct MemberChanged {
  MemberChange change;
};
struct TransferEnded {
  std::shared_ptr<TransferResult> result;
};
struct Notified {
  Notification notification;
};
/// A peer's handshake is complete.
struct PeerReady {
  std::string node;
  Incarnation peer = 0;
};
/// A message came over the fabric from an incarnation that no peer actor stands for.
struct StrangerSpoke {
  Message message;
};
/// A task of a worker thread is finished: sends this reply.
struct ReplyReady {
  ClientId client;
  nlohmann::json reply;
};
/// The data plane saw a link to this node fail.
struct PeerTrouble {
  std::string node;
};
/// A client may have died.
struct CheckLeases {
  TimePoint due;
};
/// A stream's deadline may have passed.
struct CheckStreams {
  TimePoint due;
};
/// A batch of a verification has been compared; see Verification::compared().
struct BatchCompared {
  TransferId transfer = 0;
  std::uint64_t first = 0;
  std::shared_ptr<Result<std::uint64_t>> differing;
};
/// A closed region may be free now.
struct CheckReleases {};
/// Take no new work; answered with true once nothing is in flight.
struct BeginDrain {};
struct DrainCheck {};
/// Another node asks us to drain, for its operator; 0: our own deadline.
struct DrainAsked {
  std::string from;
  Milliseconds deadline{0};
};
/// A peer asks what concerns the node as a whole: answered with PeerAnswer.
struct NodeAsked {
  std::string node;
  Incarnation peer = 0;
  std::uint64_t sequence = 0;
  std::shared_ptr<const Question> question;
};
/// The answer to an AskForNode.
struct NodeAnswered {
  std::uint64_t token = 0;
  std::shared_ptr<Result<Answer>> answer;
};
/// Something of third-party transfers may be due.
struct CheckDelegated {
  TimePoint due;
};
/// Members that departed long ago are forgotten.
struct ForgetDeparted {};
/// For those who watch: answered with Watched.
struct AskWatched {};
struct Watched {
  /// {"status", "nodes", "transfers", "counts"}: the replies of these names, and Monitor::counts().
  std::shared_ptr<const nlohmann::json> everything;
};
/// The drain's deadline passed: cancel what is left.
struct CancelAll {};

// -- to a device actor ---------------------------------------------------------------------------

struct Admit {
  std::shared_ptr<Admitted> admitted;
};
struct CancelTransfer {
  TransferId transfer = 0;
};
/// Local transfers that use the region are cancelled, remote ones revoked.
struct EvictRegion {
  std::string region;
};
struct PollerRang {};
struct PeerUp {
  std::string node;
  Incarnation peer = 0;
  caf::actor actor;
  std::vector<std::string> devices;  // of the peer
};
/// May come again for the same peer, once it is known to be `gone`.
struct PeerDown {
  std::string node;
  Incarnation peer = 0;
  Error error;
  bool gone = false;
};
/// The peer actor exists (its handshake may still be under way): route its messages.
struct PeerKnown {
  Incarnation peer = 0;
  caf::actor actor;
};
struct PeerAnswered {
  std::uint64_t token = 0;
  std::shared_ptr<Result<Answer>> answer;
  std::shared_ptr<Result<std::vector<Peer::PathCard>>> links;
};
struct PeerAsked {
  std::string node;
  Incarnation peer = 0;
  std::uint64_t sequence = 0;
  Question question;
  std::optional<TimePoint> asked_at;  // see Peer::Port::asked
  std::vector<LinkId> links{};        // with an Open that asks for staging: ours to its device
};
/// A fence without a device: its initiator never saw an OPEN_OK.
struct ForgetTransfer {
  Incarnation peer = 0;
  TransferId transfer = 0;
  std::uint64_t sequence = 0;  // of the fence
};
/// A third-party transfer that a client here does not wait for any more: see Inbound::give_up().
struct GiveUpInbound {
  Incarnation peer = 0;  // the executor
  TransferId shadow = 0;
  Error error;
};
struct CopyEnded {
  TransferId transfer = 0;
  std::uint64_t bytes = 0;
  std::uint64_t chunks = 0;
  std::optional<Error> error{};  // a kernel failed
};
struct RegionRekeyed {
  std::string region;
  std::uint16_t nic = 0;
};
/// Links of this device to a device of the peer's work again: these are the ones to use now.
struct LinksBack {
  Incarnation peer = 0;
  std::string remote_device;
  std::shared_ptr<std::vector<Peer::PathCard>> links;
};
struct AskSnapshot {};
/// Answered with UnfinishedTransfer.
struct AskUnfinished {
  TransferId transfer = 0;
};
struct DrainDevice {};
struct Tick {};

// -- to a peer actor -----------------------------------------------------------------------------

struct PeerReceive {
  Message message;
};
struct PeerAsk {
  std::size_t device = 0;  // of ours: who wants the answer
  std::uint64_t token = 0;
  Question question;
  TimePoint deadline;
};
struct PeerAnswer {
  std::uint64_t sequence = 0;
  Answer answer;
};
struct LinkTrouble {
  LinkId link = 0;
  Error error;
};
struct LinkStandsStill {
  LinkId link = 0;
};
/// A card of ours is down, or up again.
struct OurCardChanged {
  std::size_t device = 0;
  std::uint16_t nic = 0;
  bool up = true;
};
/// A device has forgotten what a fence without a device names.
struct Forgotten {
  std::uint64_t sequence = 0;
};
struct InboundMoved {};
/// The client asks that the peer drains: its answer is the reply.
struct AskDrain {
  ClientId client;
  std::uint64_t request = 0;
  std::uint32_t deadline_ms = 0;
};
/// The node actor asks the peer: it hears the answer by NodeAnswered.
struct AskForNode {
  std::uint64_t token = 0;
  Question question;
  TimePoint deadline;
};
/// Pages to be compared by the peer: the node actor hears of it by BatchCompared.
struct AskVerify {
  TransferId transfer = 0;
  std::uint64_t first = 0;
  std::shared_ptr<const Verify> question;
  TimePoint deadline;
};
struct PeerClose {
  Error error;
};

// -- to a nic actor ------------------------------------------------------------------------------

struct NicChanged {
  NicState state;
};
/// How the card appears from one peer.
struct CardSeen {
  Incarnation peer = 0;
  CardView view = CardView::kUnknown;
  std::string why;
};
struct AskNicHealth {};
struct NicHealth {
  std::string name;
  bool up = true;
  std::uint64_t outages = 0;
  std::string last_error;
};

/// A device's answer to AskSnapshot.
struct DeviceSnapshot {
  std::vector<Outbound::Snapshot> outbound;
  std::size_t inbound = 0;
  Outbound::Counters counters;
  std::uint64_t staging_slots_lent = 0;
};
struct UnfinishedTransfer {
  std::shared_ptr<std::optional<Outbound::Unfinished>> found;
};

}  // namespace penstock

PENSTOCK_MESSAGE(penstock::ClientRequest)
PENSTOCK_MESSAGE(penstock::ClientGone)
PENSTOCK_MESSAGE(penstock::MemberChanged)
PENSTOCK_MESSAGE(penstock::TransferEnded)
PENSTOCK_MESSAGE(penstock::Notified)
PENSTOCK_MESSAGE(penstock::PeerReady)
PENSTOCK_MESSAGE(penstock::StrangerSpoke)
PENSTOCK_MESSAGE(penstock::ReplyReady)
PENSTOCK_MESSAGE(penstock::CheckLeases)
PENSTOCK_MESSAGE(penstock::CheckStreams)
PENSTOCK_MESSAGE(penstock::BatchCompared)
PENSTOCK_MESSAGE(penstock::CheckReleases)
PENSTOCK_MESSAGE(penstock::BeginDrain)
PENSTOCK_MESSAGE(penstock::DrainCheck)
PENSTOCK_MESSAGE(penstock::DrainAsked)
PENSTOCK_MESSAGE(penstock::ForgetDeparted)
PENSTOCK_MESSAGE(penstock::CancelAll)
PENSTOCK_MESSAGE(penstock::NodeAsked)
PENSTOCK_MESSAGE(penstock::NodeAnswered)
PENSTOCK_MESSAGE(penstock::CheckDelegated)
PENSTOCK_MESSAGE(penstock::AskForNode)
PENSTOCK_MESSAGE(penstock::PeerTrouble)
PENSTOCK_MESSAGE(penstock::Admit)
PENSTOCK_MESSAGE(penstock::CancelTransfer)
PENSTOCK_MESSAGE(penstock::EvictRegion)
PENSTOCK_MESSAGE(penstock::PollerRang)
PENSTOCK_MESSAGE(penstock::PeerUp)
PENSTOCK_MESSAGE(penstock::PeerDown)
PENSTOCK_MESSAGE(penstock::PeerKnown)
PENSTOCK_MESSAGE(penstock::PeerAnswered)
PENSTOCK_MESSAGE(penstock::PeerAsked)
PENSTOCK_MESSAGE(penstock::ForgetTransfer)
PENSTOCK_MESSAGE(penstock::GiveUpInbound)
PENSTOCK_MESSAGE(penstock::CopyEnded)
PENSTOCK_MESSAGE(penstock::RegionRekeyed)
PENSTOCK_MESSAGE(penstock::AskSnapshot)
PENSTOCK_MESSAGE(penstock::DrainDevice)
PENSTOCK_MESSAGE(penstock::Tick)
PENSTOCK_MESSAGE(penstock::PeerReceive)
PENSTOCK_MESSAGE(penstock::PeerAsk)
PENSTOCK_MESSAGE(penstock::PeerAnswer)
PENSTOCK_MESSAGE(penstock::LinkTrouble)
PENSTOCK_MESSAGE(penstock::Forgotten)
PENSTOCK_MESSAGE(penstock::InboundMoved)
PENSTOCK_MESSAGE(penstock::AskDrain)
PENSTOCK_MESSAGE(penstock::AskVerify)
PENSTOCK_MESSAGE(penstock::PeerClose)
PENSTOCK_MESSAGE(penstock::NicChanged)
PENSTOCK_MESSAGE(penstock::CardSeen)
PENSTOCK_MESSAGE(penstock::LinksBack)
PENSTOCK_MESSAGE(penstock::LinkStandsStill)
PENSTOCK_MESSAGE(penstock::OurCardChanged)
PENSTOCK_MESSAGE(penstock::AskNicHealth)
PENSTOCK_MESSAGE(penstock::NicHealth)
PENSTOCK_MESSAGE(penstock::DeviceSnapshot)
PENSTOCK_MESSAGE(penstock::AskUnfinished)
PENSTOCK_MESSAGE(penstock::UnfinishedTransfer)
PENSTOCK_MESSAGE(penstock::AskWatched)
PENSTOCK_MESSAGE(penstock::Watched)
