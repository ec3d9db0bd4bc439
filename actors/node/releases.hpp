// Closed regions on their way out: each is taken apart once nobody uses it any more.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/clock.hpp"
#include "actors/node/region_jobs.hpp"

namespace penstock {

class Releases {
 public:
  /// `evict` ends the transfers that use a region of this name. `patience`: a client that asked is
  /// told BUSY then, and the region is open again.
  Releases(RegionJobs& jobs, Milliseconds patience, std::function<void(const std::string&)> evict)
      : jobs_(jobs), patience_(patience), evict_(std::move(evict)) {}

  /// Of a closed region. Without `reply` its client has died: then it goes, however long it takes.
  void begin(const std::shared_ptr<Region>& region, std::optional<RegionJobs::Reply> reply,
             TimePoint now);
  /// To be called again and again while there are any.
  void look(TimePoint now);
  bool any() const { return !open_.empty(); }
  /// Whoever waits for one is told nothing any more.
  void drop() { open_.clear(); }

 private:
  struct Open {
    std::shared_ptr<Region> region;
    std::optional<RegionJobs::Reply> reply;
    TimePoint deadline;
  };
  bool dispose(const Open& open);

  RegionJobs& jobs_;
  const Milliseconds patience_;
  std::function<void(const std::string&)> evict_;
  std::vector<Open> open_;
};

}  // namespace penstock
