// A first walk over a message that builds nothing: is it one whole msgpack value, shallow enough,
// and no larger inside than its bytes can pay for? Only then is it worth unpacking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/error.hpp"

namespace penstock {

/// Containers inside containers. A transfer needs 5 (map, transfers, transfer, layout, bases,
/// pair).
inline constexpr std::size_t kMaxDepth = 8;
/// Values in all containers together; a BIN counts once, however long its list is.
inline constexpr std::uint64_t kMaxElements = 1u << 20;

struct Scan {
  /// The top map's "id" if the walk came past it, however the message ends.
  std::uint64_t id = 0;
  /// Why the message must not be unpacked.
  std::optional<Error> error;
};

/// Allocates a constant amount, reads each header once and no payload.
Scan scan_message(std::span<const std::byte> message);

}  // namespace penstock
