// Data that travels inside a message.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock {

/// Pages as a packed buffer (transport/packing/packed_buffer.hpp); empty: none.
struct InlineBytes {
  std::vector<std::byte> bytes{};
};
inline constexpr std::size_t kMaxInlineBytes = std::size_t{12} * 1024;

}  // namespace penstock
