// One walk over a message, which builds its values and refuses it at the first thing that is wrong:
// it must be one whole msgpack value, shallow enough, and no larger inside than its bytes can pay
// for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <msgpack.hpp>
#include <optional>
#include <span>

#include "transport/error.hpp"

namespace penstock {

/// Containers inside containers. A transfer needs 5 (map, transfers, transfer, layout, bases,
/// pair).
inline constexpr std::size_t kMaxDepth = 8;
/// Values in all containers together; a BIN counts once, however long its list is.
inline constexpr std::uint64_t kMaxElements = 1u << 20;

struct Unpacked {
  /// Text and lists stay in the message, containers are in the zone.
  msgpack::object value;
  /// The top map's "id" if the walk came past it, however the message ends.
  std::uint64_t id = 0;
  /// Why `value` must not be looked at.
  std::optional<Error> error;
};

/// Reads each header once and no payload. Takes 24 bytes for each value that a container declares,
/// and only as long as the message could still hold all of them.
Unpacked unpack_message(std::span<const std::byte> message, msgpack::zone& zone);

}  // namespace penstock
