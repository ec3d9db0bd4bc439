// What every call of the client throws.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace penstock::client {

/// `code` is the name on the wire (docs/protocol.md): "OUT_OF_RANGE", "NOT_FOUND", "BUSY",
/// "STALE_REGION", ... The client itself adds none of its own; it uses
///   DEADLINE_EXCEEDED  the service did not answer in time; the message names endpoint and wait
///   INVALID_ARGUMENT   the call cannot be sent as it is, or would wait for itself
///   CANCELLED          the client was closed while the call was under way
///   INTERNAL           the reply cannot be understood
/// what() is "CODE: message".
class Error : public std::runtime_error {
 public:
  Error(std::string code, std::string message)
      : std::runtime_error(code + ": " + message),
        code_(std::move(code)),
        message_(std::move(message)) {}

  const std::string& code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  std::string code_;
  std::string message_;
};

}  // namespace penstock::client
