// Staging slots of ours that peers write to, and the credits for those that were scattered.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/error.hpp"
#include "transport/packing/credit.hpp"
#include "transport/packing/packed_buffer.hpp"
#include "transport/poller/command.hpp"

namespace penstock {

class PackedArrivals {
 public:
  void arm(ArmPacked&& command) {
    auto lent = std::make_shared<Lent>();
    lent->credit.transfer = command.transfer;
    lent->slot_bytes = command.slot_bytes;
    lent->staging = std::move(command.staging);
    lent->region = std::move(command.region);
    lent->links = std::move(command.credit_links);
    for (const StagingSlot& slot : command.slots) slots_[slot.immediate] = {lent, slot.offset};
  }
  void disarm(const std::vector<StagingSlot>& slots) {
    for (const StagingSlot& slot : slots) slots_.erase(slot.immediate);
  }

  enum class Arrival : unsigned char { kUnknown, kScattered, kMalformed };
  /// A write with this immediate is complete: its slot is scattered, here and now. That is a copy
  /// of a slot's size, as long as what a provider in software copies for one write.
  Arrival arrived(std::uint32_t immediate) {
    const auto found = slots_.find(immediate);
    if (found == slots_.end()) return Arrival::kUnknown;
    Lent& lent = *found->second.first;
    const auto slot = lent.staging->bytes().subspan(found->second.second, lent.slot_bytes);
    const auto copied = unpack(slot, lent.region->bytes());
    if (!copied) {
      malformed_ = copied.error();
      return Arrival::kMalformed;
    }
    if (lent.credit.immediates.empty()) due_.push_back(found->second.first);
    lent.credit.immediates.push_back(immediate);
    return Arrival::kScattered;
  }
  /// Why the last slot was kMalformed.
  const Error& malformed() const { return malformed_; }

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
  };
  std::unordered_map<std::uint32_t, std::pair<std::shared_ptr<Lent>, std::uint64_t>> slots_;
  std::vector<std::shared_ptr<Lent>> due_;
  Error malformed_;
};

}  // namespace penstock
