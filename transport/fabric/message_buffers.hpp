// The buffers of a card's control endpoint: receives that are always posted, and room for sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/fabric/domain.hpp"

namespace penstock {

/// One registered slab, cut into slots of kMaxMessageBytes: the first half receives, the second
/// half sends.
class MessageBuffers {
 public:
  static constexpr std::size_t kReceives = 64;
  static constexpr std::size_t kSends = 64;

  static Result<std::unique_ptr<MessageBuffers>> open(Domain& domain);

  /// Posts the receives that wait for it; those the provider has no room for wait on.
  Result<void> post_receives(fid_ep* endpoint);
  /// Copies and sends. kAgain also when all send slots are out.
  Post send(fid_ep* endpoint, fi_addr_t peer, std::span<const std::byte> payload,
            OperationContext* context);

  /// What a context that came out of a completion queue belongs to.
  struct Finished {
    OperationContext* sent = nullptr;     // the context that send() was given
    std::span<const std::byte> received;  // valid until recycle()
    bool receive = false;
  };
  /// Nothing for a context that is not ours (providers leave it undefined on inbound writes).
  std::optional<Finished> finish(void* context, std::size_t length);
  /// The payloads handed out so far are no longer read.
  void recycle();

 private:
  struct alignas(16) Slot {
    OperationContext context;  // at the front: what the provider gets
    OperationContext* sender = nullptr;
    bool posted = false;
  };

  MessageBuffers() : slots_(kReceives + kSends), memory_(slots_.size() * kMaxMessageBytes) {}
  std::byte* buffer(std::size_t slot) { return memory_.data() + slot * kMaxMessageBytes; }

  std::vector<Slot> slots_;
  std::vector<std::byte> memory_;
  std::unique_ptr<MemoryRegistration> registration_;
  std::vector<std::size_t> free_sends_;
  std::vector<std::size_t> to_post_;  // receives
  std::vector<std::size_t> lent_;     // receives whose payload the caller may still read
};

}  // namespace penstock
