// The keys that a client shows, and the one that it expects of its service. Not installed.
#pragma once

#include <optional>
#include <string>

#include "client/cpp/penstock.hpp"

namespace penstock::client {

/// As ZeroMQ takes them: 40 characters each.
struct Keys {
  std::string secret_key;
  std::string public_key;
  std::string server_key;
};

/// From the options, and from the environment where they say nothing. None: no keys are wanted, or
/// the endpoint is not tcp (an ipc endpoint is guarded by its file). Throws Error
/// INVALID_ARGUMENT or DENIED that says what is wrong.
std::optional<Keys> keys_for(const Options& options);

}  // namespace penstock::client
