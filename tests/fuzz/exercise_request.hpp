// What one message of a stranger may go through in the service, short of memory being moved:
// decode, and for transfers a plan that is walked. Says what went wrong; must never crash.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/protocol/request.hpp"
#include "transport/plan/plan.hpp"

namespace penstock::test {

/// Chunks that are worth walking; larger plans are only made.
inline constexpr std::uint64_t kMaxWalkedChunks = 1 << 12;

inline std::string walk(const Plan& plan) {
  Cursor cursor(plan);
  Chunk chunk;
  std::uint64_t chunks = 0, bytes = 0;
  while (cursor.next(chunk)) {
    if (chunk.sequence != chunks++) return "chunk numbers have a gap";
    if (chunk.length == 0 || chunk.length > plan.limits().max_chunk_bytes) return "chunk size";
    bytes += chunk.length;
    if (chunk.source_offset + chunk.length > plan.source_end()) return "source past its end";
    if (chunk.destination_offset + chunk.length > plan.destination_end())
      return "destination past its end";
  }
  if (chunks != plan.chunks()) return "fewer or more chunks than promised";
  return bytes == plan.bytes() ? "" : "bytes do not add up";
}

inline std::string exercise_layout(const Layout& layout, std::uint64_t max_chunk_bytes) {
  auto plan = Plan::make(layout, PlanLimits{max_chunk_bytes, true});
  if (!plan) return plan.error().message.empty() ? "a plan was refused without words" : "";
  return (*plan)->chunks() <= kMaxWalkedChunks ? walk(**plan) : "";
}

/// "" or the promise that was broken.
inline std::string exercise_request(std::span<const std::byte> message) {
  // A copy of exactly this size, so that a sanitizer sees any read past it.
  auto owner = std::make_shared<std::vector<std::byte>>(message.begin(), message.end());
  auto request = decode_request(*owner, owner);
  owner.reset();  // lists must keep it alive by themselves
  if (!request) {
    const std::string& words = request.error().error.message;
    if (words.empty()) return "refused without words";
    for (char c : words)
      if (c < 0x20 || c > 0x7e) return "an error quotes raw bytes of the client";
    return "";
  }
  auto* transfer = std::get_if<TransferRequest>(&request->body);
  if (!transfer) return "";
  for (const TransferSpec& spec : transfer->transfers)
    for (std::uint64_t chunk_bytes : {std::uint64_t{1} << 20, std::uint64_t{100}})
      if (auto broken = exercise_layout(spec.layout, chunk_bytes); !broken.empty()) return broken;
  return "";
}

}  // namespace penstock::test
