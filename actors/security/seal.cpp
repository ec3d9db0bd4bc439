#include "actors/security/seal.hpp"

#include <sodium.h>

#include <string_view>

namespace penstock {
namespace {

constexpr std::string_view kUse = "penstock fabric seal 1";

const std::uint8_t* bytes_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

}  // namespace

Seal::Seal(const Secrets& secrets, const Key& peer) {
  Key shared{};
  // A key that cannot be one leaves a secret that nobody else has: nothing fits then.
  if (crypto_scalarmult(shared.data(), secrets.session.data(), peer.data()) != 0)
    randombytes_buf(shared.data(), shared.size());
  crypto_generichash_state state;
  crypto_generichash_init(&state, secrets.cluster.data(), secrets.cluster.size(), pair_.size());
  crypto_generichash_update(&state, reinterpret_cast<const std::uint8_t*>(kUse.data()),
                            kUse.size());
  crypto_generichash_update(&state, shared.data(), shared.size());
  crypto_generichash_final(&state, pair_.data(), pair_.size());
  sodium_memzero(shared.data(), shared.size());
}

Seal::Challenge Seal::new_challenge() {
  Challenge challenge{};
  randombytes_buf(challenge.data(), challenge.size());
  return challenge;
}

std::array<std::uint8_t, Seal::kBytes> Seal::digest(std::span<const std::byte> message,
                                                    const Challenge& receivers) const {
  std::array<std::uint8_t, kBytes> seal{};
  crypto_generichash_state state;
  crypto_generichash_init(&state, pair_.data(), pair_.size(), seal.size());
  crypto_generichash_update(&state, receivers.data(), receivers.size());
  crypto_generichash_update(&state, bytes_of(message), message.size());
  crypto_generichash_final(&state, seal.data(), seal.size());
  return seal;
}

void Seal::close(std::vector<std::byte>& message, const Challenge& receivers) const {
  for (const std::uint8_t byte : digest(message, receivers))
    message.push_back(static_cast<std::byte>(byte));
}

bool Seal::fits(std::span<const std::byte> message, std::span<const std::byte> seal,
                const Challenge& receivers) const {
  return seal.size() == kBytes &&
         sodium_memcmp(digest(message, receivers).data(), bytes_of(seal), kBytes) == 0;
}

}  // namespace penstock
