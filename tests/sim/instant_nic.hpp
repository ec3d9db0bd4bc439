// A card that takes everything and completes it at the next poll: what is left is the poller's
// work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/fabric/nic.hpp"

namespace penstock::sim {

class InstantNic : public Nic {
 public:
  class Registration final : public MemoryRegistration {
    std::uint64_t key() const override { return 1; }
    std::uint64_t remote_base() const override { return 0; }
    void* descriptor() const override { return nullptr; }
  };

  InstantNic() {
    info_.name = "instant";
    info_.max_chunk_bytes = 1u << 30;
  }
  const NicInfo& info() const override { return info_; }
  FabricAddress control_address() const override { return FabricAddress(1); }
  FabricAddress inbound_address() const override { return FabricAddress(1); }
  std::uint32_t inbound_generation() const override { return 1; }
  Result<PeerHandle> add_peer(const FabricAddress&) override { return 1; }
  void remove_peer(PeerHandle) override {}
  Post post(const OneSided&, OperationContext* context) override {
    posted_.push_back(context);
    return {};
  }
  Post send(PeerHandle, std::span<const std::byte>, OperationContext* context) override {
    posted_.push_back(context);
    return {};
  }
  std::size_t poll(std::span<Completion> completions) override {
    polls.fetch_add(1, std::memory_order_relaxed);
    const auto count = std::min(completions.size(), posted_.size());
    for (std::size_t i = 0; i < count; ++i) {
      completions[i] = {};
      completions[i].context = posted_[i];
    }
    posted_.erase(posted_.begin(), posted_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  bool may_wait() override { return true; }
  Result<void> reopen_outbound() override { return {}; }
  Result<void> reopen_inbound() override { return {}; }
  Result<std::unique_ptr<MemoryRegistration>> register_memory(std::span<std::byte>) override {
    return std::make_unique<Registration>();
  }

  std::atomic<std::uint64_t> polls{0};  // any thread may look

 private:
  NicInfo info_;
  std::vector<OperationContext*> posted_;
};

}  // namespace penstock::sim
