// The transfers of one lane that have something to post, in the order in which they take turns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "transport/poller/transfer_work.hpp"

namespace penstock {

/// Each card walks the ring at its own pace and has a position in it.
class LaneRing {
 public:
  explicit LaneRing(std::size_t cards) : positions_(cards, 0) {}

  bool empty() const { return members_.empty(); }
  std::size_t size() const { return members_.size(); }
  const std::vector<TransferWork*>& members() const { return members_; }
  TransferWork* current(std::size_t card) const { return members_[positions_[card]]; }
  void advance(std::size_t card) {
    if (++positions_[card] >= members_.size()) positions_[card] = 0;
  }

  void add(TransferWork* transfer) {
    if (transfer->queued) return;
    transfer->queued = true;
    transfer->credit = 0;
    members_.push_back(transfer);
  }
  void remove(TransferWork* transfer) {
    if (!transfer->queued) return;
    transfer->queued = false;
    const auto at = std::find(members_.begin(), members_.end(), transfer);
    const auto index = static_cast<std::size_t>(at - members_.begin());
    members_.erase(at);
    for (auto& position : positions_) {
      if (position > index) --position;
      if (position >= members_.size()) position = 0;
    }
  }

 private:
  std::vector<TransferWork*> members_;
  std::vector<std::size_t> positions_;
};

}  // namespace penstock
