// The slots of a device's staging memory that peers' packed writes land in. They are lent to a
// transfer when it is opened, a few each, and come back when nothing can land in them any more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "actors/device/region_table.hpp"

namespace penstock {

class StagingPool {
 public:
  /// `slots` of `slot_bytes` each from `first` on in `region`, which is registered with every card
  /// and in no RegionTable: only an OPEN_OK tells its keys.
  StagingPool(std::shared_ptr<Region> region, std::uint64_t slot_bytes, std::uint64_t first,
              std::uint64_t slots)
      : region_(std::move(region)), slot_bytes_(slot_bytes) {
    for (std::uint64_t i = slots; i > 0; --i) free_.push_back(first + (i - 1) * slot_bytes);
    slots_ = slots;
  }

  const std::shared_ptr<Region>& region() const { return region_; }
  std::uint64_t slot_bytes() const { return slot_bytes_; }

  /// Offsets of slots: what is wanted, but never more than a quarter of what is left, so that the
  /// next transfer finds some too. None: the transfer goes without.
  std::vector<std::uint64_t> lend(std::uint64_t wanted) {
    const std::uint64_t fair = std::max<std::uint64_t>(free_.size() / 4, 1);
    const std::uint64_t count = std::min({wanted, fair, std::uint64_t{free_.size()}});
    const auto first = free_.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<std::uint64_t> lent(first, free_.end());
    free_.erase(first, free_.end());
    return lent;
  }
  void give_back(std::uint64_t offset) { free_.push_back(offset); }
  std::uint64_t lent() const { return slots_ - free_.size(); }

 private:
  std::shared_ptr<Region> region_;
  std::uint64_t slot_bytes_;
  std::uint64_t slots_ = 0;
  std::vector<std::uint64_t> free_;
};

}  // namespace penstock
