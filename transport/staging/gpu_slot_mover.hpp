// Gathers pages of a GPU into slots of pinned memory, and scatters them from there, by kernels.
#pragma once

#include <memory>
#include <vector>

#include "transport/gpu/page_mover.hpp"
#include "transport/gpu/pinned.hpp"
#include "transport/packing/slot_mover.hpp"

namespace penstock {

class GpuSlotMover final : public SlotMover {
 public:
  /// `slots`: the staging memory that every slot lies in. Blocks while the GPU's context is made.
  static Result<std::unique_ptr<GpuSlotMover>> make(int gpu, std::shared_ptr<PinnedMemory> slots);

  Result<Ticket> start(std::span<const MovedPage> pages, std::span<std::byte> region,
                       std::span<std::byte> slot, MoveDirection direction) override;
  Result<bool> poll(Ticket ticket) override;

 private:
  GpuSlotMover(std::shared_ptr<PinnedMemory> slots, std::unique_ptr<PageMover> mover)
      : slots_(std::move(slots)), mover_(std::move(mover)) {}

  std::shared_ptr<PinnedMemory> slots_;
  std::unique_ptr<PageMover> mover_;  // goes first: it waits for its copies
  std::vector<CopyPiece> pieces_;     // kept for its room
  std::uint32_t next_lane_ = 0;
};

}  // namespace penstock
