// The 32-bit immediates that a receiving device hands out: 20 bits of slot, 12 bits of generation.
// A slot that is used again has another generation, so that a late immediate of the transfer before
// is recognised. Free slots are used in turn, oldest first: a generation comes back only after
// 4096 uses of its slot.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace penstock {

class Slots {
 public:
  static constexpr std::uint32_t kSlotBits = 20;
  static constexpr std::uint32_t kGenerationBits = 12;
  /// Slots are reused only once this many were handed out, for as long as the numbers last.
  static constexpr std::uint32_t kReuseAfter = 1024;

  explicit Slots(std::uint32_t capacity = 1u << kSlotBits) : capacity_(capacity) {}

  /// Nothing when every slot is taken: the transfer then ends by FIN.
  std::optional<std::uint32_t> take() {
    std::uint32_t slot = 0;
    const bool may_grow = generations_.size() < capacity_;
    if (!free_.empty() && (free_.size() >= kReuseAfter || !may_grow)) {
      slot = free_.front();
      free_.pop_front();
      generations_[slot] = (generations_[slot] + 1) & ((1u << kGenerationBits) - 1);
    } else if (may_grow) {
      slot = static_cast<std::uint32_t>(generations_.size());
      generations_.push_back(0);
    } else {
      return std::nullopt;
    }
    return (generations_[slot] << kSlotBits) | slot;
  }

  /// Nothing that carries this immediate can arrive any more.
  void give_back(std::uint32_t immediate) { free_.push_back(immediate & ((1u << kSlotBits) - 1)); }

  std::size_t taken() const { return generations_.size() - free_.size(); }

 private:
  std::uint32_t capacity_;
  std::vector<std::uint32_t> generations_;
  std::deque<std::uint32_t> free_;
};

}  // namespace penstock
