// The one error type of every floor. An error says what was asked, what was found and what to do.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace penstock {

enum class ErrorCode : unsigned char {
  kInvalidArgument,    // the request itself is wrong
  kOutOfRange,         // a range does not lie inside its region
  kNotFound,           // no such region, node, transfer ...
  kAlreadyExists,      // the name is taken
  kBusy,               // in use by a transfer; cancel it or ask again
  kDenied,             // the asker may not do this
  kResourceExhausted,  // a limit was reached: memory, slots, descriptors
  kUnsupported,        // this build, provider or card cannot do it
  kStalePeer,          // the message names an incarnation that is gone
  kStaleRegion,        // the region was released or replaced since
  kPeerUnreachable,    // the peer did not answer within its deadline
  kPeerLeft,           // the peer left while the work was under way
  kPeerDead,           // the peer died, or was declared dead, while the work was under way
  kDeadlineExceeded,   // the transfer's own deadline passed
  kCancelled,          // somebody asked for it to stop
  kDraining,           // the node takes no new work
  kProvider,           // libfabric or the driver reported a failure
  kInternal,           // a bug of ours
  kExecutorDied,       // the node that carried it out for us died, restarted or left
};

/// The code's name on the wire and in logs, such as "OUT_OF_RANGE".
std::string_view name_of(ErrorCode code);
/// Inverse of name_of; kInternal for a name this build does not know.
ErrorCode error_code_of(std::string_view name);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

/// Builds the failing side of a Result: `return fail(ErrorCode::kNotFound, "no region '{}'",
/// name);`
template <class... Args>
tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  return tl::unexpected(Error{code, fmt::format(text, std::forward<Args>(args)...)});
}

}  // namespace penstock
