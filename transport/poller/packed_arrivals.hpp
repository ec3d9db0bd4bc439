// Staging slots of ours that peers write to, their scattering, and the credits for those that are
// scattered.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/error.hpp"
#include "transport/packing/credit.hpp"
#include "transport/packing/packed_buffer.hpp"
#include "transport/packing/slot_mover.hpp"
#include "transport/poller/command.hpp"

namespace penstock {

class PackedArrivals {
 public:
  /// `mover`: of the region's memory, null for host memory. It must outlive this.
  void arm(ArmPacked&& command, SlotMover* mover) {
    auto lent = std::make_shared<Lent>();
    lent->credit.transfer = command.transfer;
    lent->slot_bytes = command.slot_bytes;
    lent->staging = std::move(command.staging);
    lent->region = std::move(command.region);
    lent->links = std::move(command.credit_links);
    lent->mover = mover;
    for (const StagingSlot& slot : command.slots) slots_[slot.immediate] = {lent, slot.offset};
  }
  /// Nothing more of these slots is scattered. False: some are being scattered right now;
  /// take_disarmed() tells the tag once they are not.
  bool disarm(const std::vector<StagingSlot>& slots, std::uint64_t tag);

  enum class Arrival : unsigned char { kUnknown, kTaken, kMalformed };
  /// A write with this immediate is complete. In host memory its slot is scattered here and now:
  /// that is a copy of a slot's size, as long as what a provider in software copies for one write.
  /// Elsewhere the scattering begins.
  Arrival arrived(std::uint32_t immediate) {
    const auto found = slots_.find(immediate);
    if (found == slots_.end()) return Arrival::kUnknown;
    const auto& [lent, offset] = found->second;
    if (lent->mover != nullptr) return begin(immediate, lent, offset);
    const auto slot = lent->staging->bytes().subspan(offset, lent->slot_bytes);
    const auto copied = unpack(slot, lent->region->bytes());
    if (!copied) {
      malformed_ = copied.error();
      return Arrival::kMalformed;
    }
    credit(lent, immediate);
    return Arrival::kTaken;
  }
  /// Why the last slot was kMalformed.
  const Error& malformed() const { return malformed_; }

  /// Slots are being scattered: look() has to be called.
  bool moving() const { return !moves_.empty(); }
  /// Looks which are scattered by now; returns how many ended. One that failed is never credited:
  /// its sender stops waiting by itself.
  std::size_t look();
  /// Tags of disarm() that have become true.
  std::vector<std::uint64_t> take_disarmed() { return std::exchange(disarmed_, {}); }
  /// What went wrong since the last call.
  std::vector<Error> take_failures() { return std::exchange(failures_, {}); }

  bool credits_due() const { return !due_.empty(); }
  /// Calls `send(credit, links)` for each transfer with slots scattered since.
  template <class Send>
  void give_credits(Send send) {
    for (const auto& lent : std::exchange(due_, {})) {
      send(lent->credit, lent->links);
      lent->credit.immediates.clear();
    }
  }

 private:
  /// What is lent to one transfer.
  struct Lent {
    Credit credit;  // not sent yet
    std::uint64_t slot_bytes = 0;
    std::shared_ptr<RegionMemory> staging;
    std::shared_ptr<RegionMemory> region;
    std::vector<LinkId> links;
    SlotMover* mover = nullptr;
  };
  /// A slot that is being scattered.
  struct Move {
    std::shared_ptr<Lent> lent;
    std::uint32_t immediate = 0;
    std::uint64_t offset = 0;
    std::vector<MovedPage> pages;  // until it could be started
    SlotMover::Ticket ticket = SlotMover::kNothing;
    bool armed = true;
    std::vector<std::uint64_t> tags;  // of disarms that wait for it
  };

  void credit(const std::shared_ptr<Lent>& lent, std::uint32_t immediate) {
    if (lent->credit.immediates.empty()) due_.push_back(lent);
    lent->credit.immediates.push_back(immediate);
  }
  Arrival begin(std::uint32_t immediate, const std::shared_ptr<Lent>& lent, std::uint64_t offset);
  bool start(Move& move);
  bool ended(Move& move);
  void tell(const Move& move);

  std::unordered_map<std::uint32_t, std::pair<std::shared_ptr<Lent>, std::uint64_t>> slots_;
  std::vector<Move> moves_;
  std::vector<std::uint64_t> disarmed_;
  std::vector<Error> failures_;
  std::vector<std::shared_ptr<Lent>> due_;
  Error malformed_;
};

}  // namespace penstock
