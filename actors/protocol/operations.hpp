// The decoders of single operations; request.cpp finds the right one by the request's "op".
#pragma once

#include "actors/protocol/fields.hpp"
#include "actors/protocol/request.hpp"

namespace penstock {

/// What one "transfer" request may hold.
inline constexpr std::size_t kMaxTransfersPerRequest = 4096;  // targets of all specs together
inline constexpr std::size_t kMaxTargets = 1024;              // of one spec

RequestBody decode_transfer(Fields& fields);
RequestBody decode_stream(Fields& fields);
RequestBody decode_append(Fields& fields);
RequestBody decode_close(Fields& fields);

}  // namespace penstock
