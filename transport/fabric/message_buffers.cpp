#include "transport/fabric/message_buffers.hpp"

#include <cstring>

namespace penstock {

Result<std::unique_ptr<MessageBuffers>> MessageBuffers::open(Domain& domain) {
  std::unique_ptr<MessageBuffers> buffers(new MessageBuffers);
  // Registered always: where FI_MR_LOCAL is not asked for, the descriptor does no harm.
  auto registration = domain.register_memory(buffers->memory_);
  if (!registration) return tl::unexpected(registration.error());
  buffers->registration_ = std::move(*registration);
  for (std::size_t slot = 0; slot < kReceives; ++slot) buffers->to_post_.push_back(slot);
  for (std::size_t slot = kReceives; slot < kReceives + kSends; ++slot)
    buffers->free_sends_.push_back(slot);
  return buffers;
}

Result<void> MessageBuffers::post_receives(fid_ep* endpoint) {
  while (!to_post_.empty()) {
    const std::size_t slot = to_post_.back();
    const auto status = fi_recv(endpoint, buffer(slot), kMaxMessageBytes,
                                registration_->descriptor(), FI_ADDR_UNSPEC, &slots_[slot].context);
    if (status == -FI_EAGAIN) return {};
    if (status != 0)
      return fail(ErrorCode::kProvider, "posting a receive: {}", fabric_error(status));
    slots_[slot].posted = true;
    to_post_.pop_back();
  }
  return {};
}

Post MessageBuffers::send(fid_ep* endpoint, fi_addr_t peer, std::span<const std::byte> payload,
                          OperationContext* context) {
  if (payload.size() > kMaxMessageBytes)
    return {PostStatus::kFailed,
            {ErrorCode::kInvalidArgument, fmt::format("a message of {} bytes is longer than {}",
                                                      payload.size(), kMaxMessageBytes)}};
  if (free_sends_.empty()) return {PostStatus::kAgain, {}};
  const std::size_t slot = free_sends_.back();
  std::memcpy(buffer(slot), payload.data(), payload.size());
  slots_[slot].sender = context;
  const auto status = fi_send(endpoint, buffer(slot), payload.size(), registration_->descriptor(),
                              peer, &slots_[slot].context);
  if (status == -FI_EAGAIN) return {PostStatus::kAgain, {}};
  if (status != 0)
    return {PostStatus::kFailed,
            {ErrorCode::kProvider, fmt::format("fi_send: {}", fabric_error(status))}};
  slots_[slot].posted = true;
  free_sends_.pop_back();
  return {};
}

std::optional<MessageBuffers::Finished> MessageBuffers::finish(void* context, std::size_t length) {
  const auto at = reinterpret_cast<std::uintptr_t>(context);
  const auto first = reinterpret_cast<std::uintptr_t>(slots_.data());
  const std::size_t slot = (at - first) / sizeof(Slot);
  if (at < first || slot >= slots_.size() || (at - first) % sizeof(Slot) != 0 ||
      !slots_[slot].posted)
    return std::nullopt;
  slots_[slot].posted = false;
  Finished finished;
  if (slot < kReceives) {
    finished.receive = true;
    finished.received = {buffer(slot), std::min(length, kMaxMessageBytes)};
    lent_.push_back(slot);
  } else {
    finished.sent = slots_[slot].sender;
    free_sends_.push_back(slot);
  }
  return finished;
}

void MessageBuffers::recycle() {
  to_post_.insert(to_post_.end(), lent_.begin(), lent_.end());
  lent_.clear();
}

}  // namespace penstock
