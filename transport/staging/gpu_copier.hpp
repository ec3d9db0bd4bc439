// Copies between two regions of this node of which one at least is on a GPU. One thread starts the
// kernels and looks when they are done; many copies are under way at once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "transport/gpu/event.hpp"
#include "transport/gpu/page_mover.hpp"
#include "transport/gpu/pinned.hpp"
#include "transport/plan/plan.hpp"

namespace penstock {

/// One side of a copy. Host memory has to be pinned.
struct GpuCopySide {
  std::shared_ptr<RegionMemory> memory;
  std::shared_ptr<PinnedMemory> pinned;  // of host memory
  /// For kernels of `gpu`. The first time for another process's memory on a peer it blocks.
  Result<CopyPlace> place(int gpu) const {
    if (memory->gpu() < 0) return CopyPlace{pinned->device_address(), -1};
    return place_on(*memory, gpu);
  }
};

struct GpuCopy {
  std::shared_ptr<const Plan> plan;  // whose ranges lie inside both sides
  GpuCopySide from;
  GpuCopySide to;
  std::shared_ptr<std::atomic<bool>> stop;  // nothing more is started once it is set
  std::shared_ptr<GpuEvent> after;          // what the copy waits for; may be null
  std::shared_ptr<GpuEvent> record;         // recorded behind it; may be null
  /// On the copier's thread, when nothing of it runs any more. The bytes copied: all of the plan's
  /// unless it was stopped.
  std::function<void(Result<std::uint64_t>)> done;
};

class GpuCopier {
 public:
  /// `name` of the thread, at most 15 characters.
  explicit GpuCopier(std::string name);
  /// Waits for what runs; what waits for its turn ends with kCancelled.
  ~GpuCopier();
  GpuCopier(const GpuCopier&) = delete;
  GpuCopier& operator=(const GpuCopier&) = delete;

  /// Any thread.
  void submit(GpuCopy copy);

 private:
  struct Running {
    GpuCopy copy;
    PageMover* mover = nullptr;
    std::shared_ptr<const GpuPlan> lists;
    CopyPlace from;
    CopyPlace to;
    std::uint32_t lane = 0;
    std::uint64_t next = 0;  // the first element that is not started
    std::uint64_t bytes = 0;
    std::deque<std::pair<CopyTicket, std::uint64_t>> out;  // with the bytes of each
    std::optional<Error> error;
  };

  void run();
  bool take();
  bool work();
  Result<PageMover*> mover_for(const GpuCopy& copy);
  bool begin(GpuCopy& copy);
  bool begin_held();
  bool start_slices(Running& running);
  bool look(Running& running);

  std::string name_;
  std::map<int, std::unique_ptr<PageMover>> movers_;  // by GPU; the thread's
  std::vector<std::unique_ptr<Running>> running_;     // the thread's
  std::deque<GpuCopy> held_;  // the thread's: no room for their lists yet, or taken just now
  std::uint32_t next_lane_ = 0;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<GpuCopy> waiting_;
  std::atomic<bool> called_{false};
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace penstock
