// The requests that concern regions: who may ask what, the jobs that do it, and regions that go
// when their client asks or dies. Part of the node actor, on its thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/clock.hpp"
#include "actors/node/asker.hpp"
#include "actors/node/region_jobs.hpp"
#include "actors/node/releases.hpp"

namespace penstock {

class MemoryRequests {
 public:
  struct Port {
    /// Ends the transfers that use the region.
    std::function<void(const std::string& region)> evict;
    /// look() is to be called in a while.
    std::function<void()> look_later;
    /// release_orphans() is to be called. Any thread, as long as a Context's reply is not
    /// destroyed.
    std::function<void()> orphaned;
  };
  /// Of one request.
  struct Context {
    const std::string& client;
    const Asker& asker;
    RegionJobs::Reply reply;  // called once, on any thread
  };

  MemoryRequests(std::unique_ptr<RegionJobs> jobs, std::shared_ptr<RegionTable> regions,
                 std::shared_ptr<Audit> audit, Milliseconds release_patience, Port port);

  void handle(Context context, const AllocateRequest& request);
  void handle(Context context, const RegisterRequest& request);
  void handle(Context context, const FillRequest& request);
  void handle(Context context, const DigestRequest& request);
  void handle(Context context, const RegionsRequest& request);
  void handle(Context context, const ReleaseRequest& request);
  void handle(Context context, const KeepRequest& request);

  /// Releases what the client has asked for and not kept; returns how many regions those are. What
  /// is being made for it goes as soon as it is there.
  std::size_t client_died(const std::string& client);
  void look();
  /// Releases what was made for clients that had died by then.
  void release_orphans();
  void stop() {
    jobs_->stop();
    releases_.drop();
  }

 private:
  /// Regions that were made for clients that had died by then, by name and epoch.
  struct Orphans {
    std::mutex mutex;
    std::vector<std::pair<std::string, std::uint64_t>> regions;
  };
  /// Of a client that something is being made for: whether it lives.
  using Life = std::atomic<bool>;
  RegionJobs::Reply for_the_living(const Context& context, const std::string& region);
  /// kDenied when it is somebody else's.
  Result<void> owns(const Context& context, const std::string& region) const {
    return context.asker.owns_region(*regions_, region, audit_.get());
  }
  void release(const std::shared_ptr<Region>& region, std::optional<RegionJobs::Reply> reply);

  std::unique_ptr<RegionJobs> jobs_;
  std::shared_ptr<RegionTable> regions_;
  std::shared_ptr<Audit> audit_;
  Port port_;
  Releases releases_;
  std::unordered_map<std::string, std::weak_ptr<Life>> lives_;
  std::shared_ptr<Orphans> orphans_ = std::make_shared<Orphans>();
};

}  // namespace penstock
