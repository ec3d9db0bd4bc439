// Curve25519 keys as ZeroMQ's CURVE uses them, written in Z85 (40 characters). docs/security.md
// says which key is for what.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "transport/error.hpp"

namespace penstock {

using Key = std::array<std::uint8_t, 32>;

struct KeyPair {
  Key public_key{};
  Key secret_key{};
};

KeyPair make_key_pair();
Key public_key_of(const Key& secret_key);

std::string z85_of(const Key& key);
/// kInvalidArgument unless `text` is 40 characters of Z85.
Result<Key> key_of_z85(std::string_view text);

/// Writes the secret key to `file` (mode 0600) and the public one to `file`.pub, one line each.
/// Never overwrites: kAlreadyExists.
Result<KeyPair> write_key_files(const std::filesystem::path& file);
/// Reads a secret key and derives its public one. kDenied when others may read or write the file.
Result<KeyPair> read_key_file(const std::filesystem::path& file);

}  // namespace penstock
