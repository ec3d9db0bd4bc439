// What the actors of a node share about one of its devices. Made at start-up, thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "actors/device/staging_pool.hpp"
#include "actors/lent_thread.hpp"
#include "actors/wire/message.hpp"
#include "actors/worker.hpp"
#include "transport/gpu/pinned.hpp"
#include "transport/poller/poller.hpp"
#include "transport/staging/gpu_copier.hpp"

namespace penstock {

/// A device's inbound endpoints as they are now: the device actor writes, peers read.
class InboundBoard {
 public:
  explicit InboundBoard(std::vector<InboundCard> cards) : cards_(std::move(cards)) {}
  std::vector<InboundCard> cards() const {
    std::lock_guard lock(mutex_);
    return cards_;
  }
  void update(const std::vector<InboundCard>& cards) {
    std::lock_guard lock(mutex_);
    cards_ = cards;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<InboundCard> cards_;
};

struct LocalDevice {
  std::string name;  // "host0", "gpu3"
  std::size_t index = 0;
  int numa_node = -1;
  int gpu = -1;  // CUDA's number of the one that the device stands for; -1: none that can be used
  std::vector<std::string> card_names;
  std::vector<FabricAddress> control_addresses;  // by card
  std::unique_ptr<InboundBoard> inbound;
  std::shared_ptr<StagingPool> staging;  // null: nothing is packed here
  std::unique_ptr<Poller> poller;
  std::shared_ptr<LentThread> lent;  // the polling thread, for actors; null: it runs none
  std::unique_ptr<Worker> registrar;
  std::unique_ptr<Worker> copier;
  // The registrar's: the GPUs whose memory the poller can move, and its staging memory for them.
  std::set<int> movable_gpus;
  std::shared_ptr<PinnedMemory> pinned_staging;
  std::unique_ptr<GpuCopier> gpu_copier;  // there before the first region on a GPU is
};

}  // namespace penstock
