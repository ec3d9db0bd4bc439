// Proof that a message over the fabric comes from the member that it names, and for this life of
// its receiver. Both members derive one secret from the session keys that their records carry
// (encrypted gossip) and the cluster's key; a seal is a keyed digest of the message and of what its
// receiver gave out at its handshake. docs/security.md has the whole. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "actors/security/key.hpp"

namespace penstock {

class Seal {
 public:
  static constexpr std::size_t kBytes = 16;
  /// Given out anew by each peer object: what was sealed for an earlier one does not fit.
  using Challenge = std::array<std::uint8_t, 16>;

  struct Secrets {
    Key session;  // this service's secret key, made at its start; its record has the public one
    Key cluster;
  };

  /// `peer`: the public session key in the other's record.
  Seal(const Secrets& secrets, const Key& peer);

  static Challenge new_challenge();
  /// Appends the seal.
  void close(std::vector<std::byte>& message, const Challenge& receivers) const;
  bool fits(std::span<const std::byte> message, std::span<const std::byte> seal,
            const Challenge& receivers) const;

 private:
  std::array<std::uint8_t, kBytes> digest(std::span<const std::byte> message,
                                          const Challenge& receivers) const;

  Key pair_{};
};

}  // namespace penstock
