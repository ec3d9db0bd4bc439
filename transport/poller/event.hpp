// What a poller tells the actors. Coarse as the commands are: at most one event per quantum,
// message or fault, never one per write.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "transport/error.hpp"
#include "transport/poller/command.hpp"

namespace penstock {

/// What of a transfer went over one card so far.
struct CardShare {
  std::uint64_t bytes = 0;
  std::uint64_t writes = 0;  // one-sided operations, reads too
  /// When the last of them that it had out completed.
  std::chrono::steady_clock::time_point last{};
};

/// The transfer wants a Grant: half of the last one or less is left to post, and more of the plan
/// is not granted yet. Early, so that the poller never starves; at most one per Grant. Several
/// grants that are given ahead are answered by one.
struct QuantumDone {
  TransferId transfer;
  std::uint64_t completed_bytes;  // of the whole transfer, so far
};

/// Nothing of the transfer is posted: it is complete, or it was stopped, or it cannot go on. After
/// a failure it goes on over the paths that are left to it; what failed stays out until a resume.
struct TransferIdle {
  TransferId transfer;
  bool complete = false;                  // every chunk of the plan completed well
  std::optional<Error> error;             // the first failure since start or resume
  std::vector<std::uint16_t> dirty_nics;  // cards on which an operation failed or was cut off
  std::vector<LinkId> dirty_links;        // the same by link
  std::uint64_t completed_bytes = 0;
  std::uint64_t packed_bytes = 0;       // of them, those that crossed packed
  std::chrono::nanoseconds elapsed{0};  // since the first operation was posted
  std::optional<std::chrono::steady_clock::time_point> first_post{};  // none: nothing was posted
  std::optional<std::chrono::steady_clock::time_point> settled{};     // when this was found
  std::vector<CardShare> shares;  // indexed by the card's place in the device
  /// One bit per chunk that completed well, by sequence. Only when !complete.
  std::vector<std::uint64_t> landed;
};

/// A send or a write on this link failed, or its address was refused.
struct LinkFailed {
  LinkId link;
  Error error;
};

/// Operations are out on this link and none has completed for PollerOptions::card_stall: the link,
/// its card, the peer's card or the peer is dead or very slow. Repeated while it lasts. The poller
/// does nothing about it before a CutOff.
struct LinkStill {
  LinkId link;
};

struct MessageReceived {
  std::uint16_t nic;
  std::vector<std::byte> payload;
};

struct ImmediateComplete {
  std::uint32_t immediate;
};

struct PackedDisarmed {
  std::uint64_t tag;
};

struct InboundReopened {
  std::uint16_t nic;
  std::uint32_t generation;
  FabricAddress address;
  std::optional<Error> error;  // the card could not be reopened: it is out
};

/// A card changed its health.
struct NicState {
  std::uint16_t nic;
  bool up;
  std::optional<Error> error;
};

using PollerEvent =
    std::variant<QuantumDone, TransferIdle, LinkFailed, MessageReceived, ImmediateComplete,
                 InboundReopened, NicState, PackedDisarmed, LinkStill>;

}  // namespace penstock
