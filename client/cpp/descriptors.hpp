// File descriptors to and from the service, over the Unix socket that its hello names. Not
// installed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/ring/shared_ring.hpp"

namespace penstock::client {

/// Hands `fd` in; returns the token that names it in a request. The caller keeps `fd`. Throws Error
/// UNSUPPORTED when there is no such socket or it cannot be reached, RESOURCE_EXHAUSTED.
std::uint64_t give_descriptor(const std::string& socket_path, int fd);
/// Fetches what a reply names by `token`; the caller closes it. Throws as above, and NOT_FOUND.
int take_descriptor(const std::string& socket_path, std::uint64_t token);
/// The same for several that were handed out together.
std::vector<RingDescriptor> take_descriptors(const std::string& socket_path, std::uint64_t token);

}  // namespace penstock::client
