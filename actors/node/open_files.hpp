// How many files this process may have open: sockets of clients and peers are files.
#pragma once

#include <cstdint>

#include "transport/error.hpp"

namespace penstock {

/// What a small node needs: some forty of its own, four or five per peer and card, one per client.
constexpr std::uint64_t kFewestOpenFiles = 256;

/// Raises the soft limit towards the hard one; returns what it is then. ZeroMQ aborts the process
/// when a connection finds no file left, so too few (kResourceExhausted) is found out before work
/// starts.
Result<std::uint64_t> raise_open_files();

}  // namespace penstock
