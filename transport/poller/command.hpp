// What actors ask of a device's poller. Commands are coarse: quanta of bytes, never single writes.
// They are executed in the order in which they were pushed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "transport/fabric/nic.hpp"
#include "transport/memory/region.hpp"
#include "transport/packing/packing.hpp"
#include "transport/packing/slot_mover.hpp"
#include "transport/plan/plan.hpp"

namespace penstock {

/// (peer card, local card), numbered by whoever opens it; never reused.
using LinkId = std::uint64_t;
using TransferId = std::uint64_t;

enum class Lane : unsigned char { kUrgent, kBulk };

/// The card `nic` (its place in the device) can talk to this peer card from now on.
struct OpenLink {
  LinkId link;
  std::uint16_t nic;
  FabricAddress control;
  FabricAddress inbound;  // may be empty until the handshake told it: then only messages work
  std::uint32_t generation = 0;  // of `inbound`
};
/// The peer reopened its inbound endpoint (or told its address for the first time). The old address
/// is dropped as soon as nothing is posted to it. Transfers lose their path over the link, since
/// that named the old endpoint; those that have no other stop.
struct MoveLink {
  LinkId link;
  FabricAddress inbound;
  std::uint32_t generation = 0;
};
/// Forgets the link once nothing is posted on it. Posting on it is refused from now on.
struct CloseLink {
  LinkId link;
};
/// Failure is told by LinkFailed; success only by the peer's answer.
struct SendMessage {
  LinkId link;
  std::vector<std::byte> payload;
};

/// Where a transfer's remote side is reachable over one link.
struct RemotePath {
  LinkId link = 0;
  std::uint64_t remote_base = 0;  // added to an offset in the remote region
  std::uint64_t remote_key = 0;
  /// Of the peer's inbound endpoint that it is good for: not taken where the link has moved on.
  std::uint32_t generation = 0;
  /// The same for the peer's staging memory; a key of 0 where it cannot be reached over this link.
  std::uint64_t staging_base = 0;
  std::uint64_t staging_key = 0;
};

/// The device's own staging memory, from which packed writes leave. Once, before any transfer.
struct UseStaging {
  std::shared_ptr<const RegisteredMemory> memory;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slots = 0;  // at the memory's start
};

/// Who moves pages of the memory of one GPU (RegionMemory::gpu()) to and from staging slots. Before
/// any transfer.
struct UseMover {
  int gpu = 0;
  std::shared_ptr<SlotMover> mover;  // the poller's alone from now on
};

/// Makes a transfer known; nothing is posted before a Grant.
struct StartTransfer {
  TransferId transfer;
  std::shared_ptr<const Plan> plan;
  Direction direction = Direction::kWrite;
  Lane lane = Lane::kBulk;
  std::shared_ptr<const RegisteredMemory> local;
  std::vector<RemotePath> paths;           // at least one
  std::optional<std::uint32_t> immediate;  // on every write, when the transfer is counted
  /// Small chunks cross packed (or all, Packing::only), until the transfer is stopped.
  std::optional<Packing> packing{};
};
/// Lets the poller post `bytes` more of the transfer (whole chunks: the last may overshoot).
struct Grant {
  TransferId transfer;
  std::uint64_t bytes;
};
/// For a transfer that lost paths: they work again, or others do instead. Those that it has are
/// kept as they are. Nothing that failed is posted again: that takes a fence and a ResumeTransfer.
struct AddPaths {
  TransferId transfer;
  std::vector<RemotePath> paths;
};
/// Posts nothing more of it. TransferIdle follows when nothing of it is posted any longer; at once,
/// with an error, when the poller does not know it. So it does after ResumeTransfer.
struct StopTransfer {
  TransferId transfer;
};
/// After a fence: goes on over `paths`, failed chunks first, all without immediates. Grants that
/// were given before the stop are void. What is left goes directly unless there is `packing` again,
/// which a transfer with Packing::only needs.
struct ResumeTransfer {
  TransferId transfer;
  std::vector<RemotePath> paths;
  std::optional<Packing> packing{};
};
/// Forgets a transfer that is idle.
struct EndTransfer {
  TransferId transfer;
};

/// Counts arriving immediates of this value: ImmediateComplete once `count` arrived.
struct ArmImmediate {
  std::uint32_t immediate;
  std::uint32_t count;
};
struct DisarmImmediate {
  std::uint32_t immediate;
};
/// Whether peers have transfers open that write to our memory or read from it. A card reports
/// nothing of reads and of writes without immediates, and yet it has to be polled for them.
struct PeersAtWork {
  bool at_work;
};

/// Slots of our staging memory are lent to a peer's transfer: whenever one of their immediates
/// arrives, the slot is scattered into `region` and a credit is sent.
struct ArmPacked {
  TransferId transfer;  // the peer's id, which the credits name
  std::vector<StagingSlot> slots;
  std::uint64_t slot_bytes = 0;
  std::shared_ptr<RegionMemory> staging;
  std::shared_ptr<RegionMemory> region;
  std::vector<LinkId> credit_links;  // the first that is open is taken
};
/// From here on nothing of these slots is scattered. PackedDisarmed{tag} follows unless tag is 0,
/// as soon as what is being scattered right now has ended.
struct DisarmPacked {
  std::vector<StagingSlot> slots;
  std::uint64_t tag = 0;
};

/// Local quiet by force: every operation posted on the card ends as failed. Paths stay.
struct ReopenOutbound {
  std::uint16_t nic;
};
/// The link of a LinkStill is dead: its peer lives. Its card's outbound endpoint is reopened, and
/// transfers lose their paths over it, and over the card's other links that stand still as long;
/// LinkFailed follows for each. Ignored when something completes on the link meanwhile.
struct CutOff {
  LinkId link;
};
/// Remote quiet: InboundReopened follows. Skipped (but answered) when the generation has already
/// moved past `generation`.
struct ReopenInbound {
  std::uint16_t nic;
  std::uint32_t generation;
};

using PollerCommand = std::variant<OpenLink, MoveLink, CloseLink, SendMessage, StartTransfer, Grant,
                                   StopTransfer, ResumeTransfer, EndTransfer, ArmImmediate,
                                   DisarmImmediate, PeersAtWork, ReopenOutbound, ReopenInbound,
                                   UseStaging, UseMover, ArmPacked, DisarmPacked, AddPaths, CutOff>;

}  // namespace penstock
