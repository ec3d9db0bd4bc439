// What a receiving poller tells a sending one: these staging slots are scattered and may be written
// again. It travels as metadata over the control endpoints, from poller to poller, since it comes
// once per slot and a detour through the actors would cost more than the slot's copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock {

struct Credit {
  std::uint64_t transfer = 0;             // the initiator's id; unique over its incarnations
  std::vector<std::uint32_t> immediates;  // each names a slot of that transfer
};

/// At most so many slots in one message.
inline constexpr std::size_t kMaxCreditSlots = 1024;

std::vector<std::byte> encode_credit(const Credit& credit);
/// Nothing when it is another message (those of actors are msgpack arrays), or a broken one.
std::optional<Credit> decode_credit(std::span<const std::byte> payload);

}  // namespace penstock
