// What a client may do. Each role may do what those before it may.
#pragma once

#include <optional>
#include <string_view>

namespace penstock {

enum class Role : unsigned char {
  kRead,      // look: status, nodes, regions, transfers, events
  kTransfer,  // work: memory, transfers; of its own
  kAdmin,     // everybody's, and the node itself: drain, remove
};
inline constexpr std::string_view kRoles[] = {"read", "transfer", "admin"};

constexpr std::string_view name_of(Role role) { return kRoles[static_cast<unsigned char>(role)]; }

constexpr std::optional<Role> role_of(std::string_view name) {
  for (unsigned char i = 0; i < 3; ++i)
    if (kRoles[i] == name) return static_cast<Role>(i);
  return std::nullopt;
}

}  // namespace penstock
