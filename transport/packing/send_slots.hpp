// The slots of a device's own staging memory, from which packed writes leave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/memory/region.hpp"

namespace penstock {

class SendSlots {
 public:
  SendSlots() = default;
  /// `slots` of `slot_bytes` each at the start of `memory`.
  SendSlots(std::shared_ptr<const RegisteredMemory> memory, std::uint64_t slot_bytes,
            std::uint64_t slots)
      : memory_(std::move(memory)), slot_bytes_(slots > 0 ? slot_bytes : 0) {
    for (std::uint64_t i = slots; i > 0; --i)
      free_.push_back(memory_->memory->bytes().subspan((i - 1) * slot_bytes, slot_bytes));
  }

  bool exhausted() const { return free_.empty(); }
  /// Of each slot; 0: there are none.
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  /// The one given back last is the next one out: it is still in the cache.
  std::span<std::byte> take() {
    const auto slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(std::span<std::byte> slot) { free_.push_back(slot); }
  /// What a card needs to read them.
  void* descriptor(std::size_t nic) const {
    const auto& registrations = memory_->registrations;
    return nic < registrations.size() && registrations[nic] ? registrations[nic]->descriptor()
                                                            : nullptr;
  }

 private:
  std::shared_ptr<const RegisteredMemory> memory_;
  std::uint64_t slot_bytes_ = 0;
  std::vector<std::span<std::byte>> free_;
};

}  // namespace penstock
