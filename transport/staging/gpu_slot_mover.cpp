#include "transport/staging/gpu_slot_mover.hpp"

namespace penstock {
namespace {

/// Slots under way at once: a kernel on a slot is short, and its launch takes as long.
constexpr std::uint32_t kMoverLanes = 8;
/// Of the list of a slot that is full of the shortest pages.
constexpr std::uint64_t kListBytes = 2u << 20;
/// A ticket is the copy's number in its lane, with the lane in the low bits.
constexpr SlotMover::Ticket kLaneBits = 8;

}  // namespace

Result<std::unique_ptr<GpuSlotMover>> GpuSlotMover::make(int gpu,
                                                         std::shared_ptr<PinnedMemory> slots) {
  PageMoverOptions options;
  options.lanes = kMoverLanes;
  options.list_bytes = kMoverLanes * kListBytes;
  options.plan_bytes = 1u << 20;  // no plans here
  auto mover = PageMover::make(gpu, options);
  if (!mover) return tl::unexpected(mover.error());
  return std::unique_ptr<GpuSlotMover>(new GpuSlotMover(std::move(slots), std::move(*mover)));
}

Result<SlotMover::Ticket> GpuSlotMover::start(std::span<const MovedPage> pages,
                                              std::span<std::byte> region,
                                              std::span<std::byte> slot, MoveDirection direction) {
  const auto staging = slots_->memory()->bytes();
  const auto offset = static_cast<std::uint64_t>(slot.data() - staging.data());
  const CopyPlace in_region{reinterpret_cast<std::uint64_t>(region.data()), mover_->gpu()};
  const CopyPlace in_slot{slots_->device_address() + offset, -1};
  const bool gather = direction == MoveDirection::kGather;
  pieces_.clear();
  for (const MovedPage& page : pages)
    pieces_.push_back(gather ? CopyPiece{page.region_offset, page.slot_offset, page.bytes}
                             : CopyPiece{page.slot_offset, page.region_offset, page.bytes});
  const std::uint32_t lane = next_lane_++ % kMoverLanes;
  const auto ticket = gather ? mover_->start(pieces_, in_region, in_slot, lane)
                             : mover_->start(pieces_, in_slot, in_region, lane);
  if (!ticket) return tl::unexpected(ticket.error());
  return ticket->number << kLaneBits | ticket->lane;
}

Result<bool> GpuSlotMover::poll(Ticket ticket) {
  const CopyTicket copy{static_cast<std::uint32_t>(ticket & ((1u << kLaneBits) - 1)),
                        ticket >> kLaneBits};
  const auto state = mover_->poll(copy);
  if (!state) return tl::unexpected(state.error());
  return *state == CopyState::kDone;
}

}  // namespace penstock
