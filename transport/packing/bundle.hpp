// The bundles of one transfer: which chunks lie in which slot, and which slots are free. A bundle's
// chunks follow one another in the plan, so that it is remembered as a place in it, not as a list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/packing/packing.hpp"
#include "transport/packing/slot_mover.hpp"
#include "transport/plan/plan.hpp"

namespace penstock {

struct Bundle {
  enum class Stage : unsigned char {
    kGathering,  // its pages are being copied to the sender's slot, or wait for that
    kGathered,
    kPosted,
    kWritten,  // and not credited
  };
  explicit Bundle(const Plan& plan) : rest(plan) {}

  Stage stage = Stage::kGathered;
  SlotMover::Ticket moving = SlotMover::kNothing;  // while it is being gathered
  Chunk first;
  Cursor rest;  // yields the chunks after the first,
  std::vector<Chunk>
      listed;  // unless they are here, all of them: failed ones do not follow one another
  std::uint64_t chunks = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t wire_bytes = 0;  // with header and index: what is written
  std::span<std::byte> local;    // the sender's slot; empty once it was given back
  StagingSlot slot;              // the receiver's
  std::uint16_t nic = 0;         // the card that it was posted on
  bool credited = false;         // the receiver has scattered it

  /// Calls `visit` with each of its chunks.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Chunk& chunk : listed) visit(chunk);
    if (!listed.empty()) return;
    Chunk chunk = first;
    Cursor cursor = rest;
    for (std::uint64_t i = 0; i < chunks; ++i) {
      if (i > 0 && !cursor.next(chunk)) return;
      visit(chunk);
    }
  }
};

/// The slots lent to a transfer and the bundles that lie in them.
class Bundles {
 public:
  Bundles(const Packing& packing, const Plan& plan)
      : below_(packing.below),
        only_(packing.only),
        slot_bytes_(packing.slot_bytes),
        plan_(&plan),
        free_(packing.slots) {}

  bool packs(const Chunk& chunk) const { return only_ || chunk.length < below_; }
  /// Nothing may go directly.
  bool only() const { return only_; }
  /// No slot is left: those that were lent may still hold what failed.
  bool spent() const { return free_.empty() && bundles_.empty(); }
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  bool slot_free() const { return !free_.empty(); }

  /// Takes a free slot.
  Bundle* open() {
    auto bundle = std::make_unique<Bundle>(*plan_);
    bundle->slot = free_.back();
    free_.pop_back();
    bundles_.push_back(std::move(bundle));
    return bundles_.back().get();
  }
  /// Null: no bundle lies in this slot.
  Bundle* find(std::uint32_t immediate) const {
    for (const auto& bundle : bundles_)
      if (bundle->slot.immediate == immediate) return bundle.get();
    return nullptr;
  }
  /// Forgets a bundle; its slot is free again unless the receiver may still hold it.
  void close(const Bundle* bundle, bool slot_is_free) {
    if (slot_is_free) free_.push_back(bundle->slot);
    std::erase_if(bundles_, [&](const auto& each) { return each.get() == bundle; });
  }
  const std::vector<std::unique_ptr<Bundle>>& all() const { return bundles_; }

 private:
  std::uint64_t below_;
  bool only_;
  std::uint64_t slot_bytes_;
  const Plan* plan_;
  std::vector<StagingSlot> free_;
  std::vector<std::unique_ptr<Bundle>> bundles_;
};

}  // namespace penstock
