// The metadata that two services exchange over the fabric's control endpoints. Every question is
// repeated until it is answered, so every question is idempotent at its receiver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "actors/wire/inline_bytes.hpp"
#include "transport/error.hpp"
#include "transport/fabric/nic.hpp"
#include "transport/poller/command.hpp"

namespace penstock {

/// Version of the fabric metadata; nodes one version apart talk at the lower one, others do not
/// connect. 2: DrainNode, Verify. 3: Delegate and what belongs to it. 4: when messages were sent.
inline constexpr std::uint32_t kWireVersion = 4;
inline constexpr std::uint32_t kDrainNodeVersion = 2;
inline constexpr std::uint32_t kDelegateVersion = 3;
inline constexpr std::uint32_t kSentVersion = 4;
/// Whether nodes that announce these versions work together.
constexpr bool compatible(std::uint32_t one, std::uint32_t other) {
  return one != 0 && other != 0 && one <= other + 1 && other <= one + 1;
}

/// One run of one node's service: start time in ns with random low bits. A restart is another node
/// to its peers; the higher incarnation of a name is the living one.
using Incarnation = std::uint64_t;

/// Where one card of a device takes one-sided operations now.
struct InboundCard {
  std::uint16_t nic = 0;  // the card's place in its device
  std::uint32_t generation = 0;
  FabricAddress address;
};
struct DeviceCards {
  std::string device;
  std::vector<InboundCard> cards;
};

/// What a peer needs to reach a region over one card of the owner's device.
struct RegionKey {
  std::uint16_t nic = 0;
  std::uint64_t base = 0;
  std::uint64_t key = 0;
};

// -- questions -----------------------------------------------------------------------------------

/// First contact, both ways; also repeated when a card's inbound endpoint moved, and over a link
/// that is to show whether it works: the answer comes back the same way.
struct Hello {
  /// The cards that it travels between; a device of "" when the asker leaves the way open.
  struct Way {
    std::string from_device;
    std::uint16_t from_nic = 0;
    std::string to_device;
    std::uint16_t to_nic = 0;
  };
  std::string node;
  std::vector<DeviceCards> devices;
  Way way{};
  /// Of sealed messages (actors/security/seal.hpp): the asker's challenge, and the other's as the
  /// asker knows it.
  std::vector<std::byte> challenge{};
  std::vector<std::byte> answers{};
};
/// May I write to (or read from) your region? No write leaves before the answer. A small write
/// comes with it and is done at once.
struct Open {
  TransferId transfer = 0;  // the initiator's; unique with its incarnation
  std::string region;
  std::uint64_t epoch = 0;  // 0: whatever is there
  Direction direction = Direction::kWrite;
  std::uint64_t end = 0;  // one past the last byte touched in the region
  std::uint64_t bytes = 0;
  std::uint32_t chunks = 0;  // how many immediates will arrive when counted; 0: it ends by Fin
  std::uint32_t lease_ms = 0;
  std::string initiator_region;
  std::string notify;
  std::string initiator_device{};
  std::uint32_t pack_slots = 0;  // staging slots wanted for packed writes; 0: none
  InlineBytes data{};            // a small write as a whole: the answer is AlreadyDone
  bool staged = false;           // everything will go through staging slots
  TransferId stream = 0;         // of which it is a part, for the notification; 0: of none
  std::uint32_t part = 0;
  /// What the owner, who asked the initiator for it, waits for under this id (actors/node/shadows);
  /// 0: it did not.
  TransferId shadow = 0;
};
/// Whether staging slots may be lent to it: the owner alone knows whether they have to be.
inline bool takes_slots(const Open& open) {
  return open.direction == Direction::kWrite && open.data.bytes.empty();
}
/// All my operations have completed.
struct Fin {
  TransferId transfer = 0;
  std::string device;
};
/// Stop it: make sure that nothing posted on these cards under these generations can land any more.
struct Fence {
  struct Card {
    std::uint16_t nic = 0;  // the OWNER's card
    std::uint32_t generation = 0;
  };
  TransferId transfer = 0;
  std::string device;
  std::vector<Card> cards;  // those on which an operation failed or was cut off; may be empty
  bool final = true;        // the transfer ends; false: it will be resumed
};
/// The owner takes the region away: stop what uses it.
struct Revoke {
  std::string region;
  std::uint64_t epoch = 0;
};

/// Drain, as an operator asked of the sender. From version 2.
struct DrainNode {
  std::uint32_t deadline_ms = 0;  // 0: the node's own
};

/// Whether these pages of the region have these digests, now that a transfer has ended. From
/// version 2.
struct Verify {
  std::string region;
  std::uint64_t epoch = 0;
  InlineBytes pages{};  // u64 triples: offset, length, XXH3
};

// A third-party transfer: its asker's node has another one, the executor, carry it out. From
// version 3.

/// Part of the request for one transfer, which is to run as the receiver's own: as a client would
/// send it (docs/protocol.md). Parts come in order, each after the answer to the one before.
struct Delegate {
  TransferId transfer = 0;  // the asker's; unique with its incarnation
  std::string client;       // who wants it: its name in the asker's allow-list, "" without keys
  bool admin = false;       // the client's role: it may touch what is others'
  std::uint32_t deadline_ms = 0;  // what is left of it
  std::uint32_t total = 0;        // bytes of the whole request
  std::uint32_t offset = 0;       // of this part
  InlineBytes part{};
};
/// The transfer is not wanted any more.
struct StopDelegated {
  TransferId transfer = 0;
};
/// How far have these come?
struct LookAtDelegated {
  std::vector<TransferId> transfers;
};
/// By the executor: this one has ended. The values of TransferResult.
struct DelegatedEnded {
  struct Card {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t writes = 0;
  };
  TransferId transfer = 0;     // the asker's
  TransferId executed_as = 0;  // the executor's
  std::uint8_t state = 0;
  bool unreachable = false;
  std::uint64_t remote_epoch = 0;
  std::uint64_t bytes = 0;
  std::uint64_t writes = 0;
  std::string path;
  std::vector<Card> cards;
  Error error;
  InlineBytes landed{};  // u64 triples
  bool landed_truncated = false;
};

// -- answers -------------------------------------------------------------------------------------

struct HelloOk {
  std::vector<DeviceCards> devices;
  std::vector<std::byte> challenge{};
  std::vector<std::byte> answers{};  // the challenge of the Hello
};
/// Staging memory of the owner's that is lent to a transfer.
struct LentStaging {
  std::uint64_t slot_bytes = 0;
  std::vector<StagingSlot> slots;
  std::vector<RegionKey> keys;
};
struct OpenOk {
  std::string device;  // the owner's
  std::optional<std::uint32_t> immediate;
  std::uint64_t epoch = 0;
  std::uint64_t region_bytes = 0;
  std::vector<RegionKey> keys;
  std::optional<LentStaging> staging{};  // when slots were wanted and some are free
  bool staged = false;  // nothing may go directly: asked for, or no card of the owner's reaches it
  bool on_gpu = false;  // the region's memory
};
struct FinOk {};
/// The cards as they are after the fence, and the region's keys on them.
struct Fenced {
  std::vector<InboundCard> cards;
  std::vector<RegionKey> keys;
  std::optional<LentStaging> staging{};  // of a staged transfer that goes on: its slots, anew
};
/// It has ended well: its data came with the Open, or count full, or Fin seen.
struct AlreadyDone {};
struct Revoked {};
struct Refused {
  Error error;
};

/// It has begun.
struct DrainBegun {};
struct Verified {
  std::uint64_t differing = 0;  // the place of the first page that differs, from 1; 0: none does
};

/// To Delegate: 0 while parts are missing, then the executor's transfer, which is accepted.
struct Delegated {
  TransferId executed_as = 0;
};
/// To StopDelegated. Not running: it never was and never will be, or has ended and that is told.
struct StopSeen {
  bool running = false;
};
/// To LookAtDelegated: in the order of the question.
struct DelegatedSeen {
  struct Progress {
    std::string state;  // of those under way; "ended", "unknown"
    std::uint64_t bytes = 0;
    std::uint64_t total_bytes = 0;
  };
  std::vector<Progress> transfers;
};
/// To DelegatedEnded.
struct EndSeen {};

using Question = std::variant<Hello, Open, Fin, Fence, Revoke, DrainNode, Verify, Delegate,
                              StopDelegated, LookAtDelegated, DelegatedEnded>;
using Answer = std::variant<HelloOk, OpenOk, FinOk, Fenced, AlreadyDone, Revoked, Refused,
                            DrainBegun, Verified, Delegated, StopSeen, DelegatedSeen, EndSeen>;
/// "Open", "OpenOk" ...,
/// for errors and logs.
std::string_view name_of(const Question& question);
std::string_view name_of(const Answer& answer);

struct Message {
  std::uint32_t version = kWireVersion;
  Incarnation source = 0;
  Incarnation destination = 0;
  std::uint64_t sequence = 0;  // the asker's; an answer repeats the question's
  std::variant<Question, Answer> body;
  // How old it may be (actors/peer/peer_clock.hpp); 0: nothing is known. A question that is
  // repeated keeps what it said first. From version 4.
  std::uint64_t sent_ms = 0;        // by the sender's clock
  std::uint64_t sent_after_ms = 0;  // passed on the receiver's clock when it was sent
  // What came, for Peer to check; empty where messages are not sealed.
  std::vector<std::byte> sealed{};
  std::vector<std::byte> seal{};
};
/// Room that encode() leaves behind a message for its seal.
inline constexpr std::size_t kSealBytes = 16;

/// At most kMaxMessageBytes with its seal, else kInvalidArgument that says what is too long.
Result<std::vector<std::byte>> encode(const Message& message);
/// Never throws, never reads past `bytes`; wrong shapes, versions and sizes are errors.
Result<Message> decode_message(std::span<const std::byte> bytes);
/// The same of a message with its seal behind it, which is kept and not checked.
Result<Message> decode_sealed_message(std::span<const std::byte> bytes);

}  // namespace penstock
