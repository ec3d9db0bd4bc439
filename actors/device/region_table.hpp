// The regions of a node, by name. Thread-safe: actors, the registrar and the gateway's answers look
// at it. Who uses a region holds a RegionUse; a region is gone only when nobody does.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/error.hpp"
#include "transport/memory/region.hpp"

namespace penstock {

struct Region {
  std::string name;
  std::uint64_t epoch = 0;  // counts up from the node's incarnation: never the same twice
  std::string device;
  std::size_t device_index = 0;
  std::uint64_t bytes = 0;
  bool client_owned = false;
  bool internal = false;             // ours alone: not listed
  std::uint64_t shared_offset = 0;   // where it starts in the segment that others map
  std::string client;                // who asked for it
  std::string who;                   // the same by its name in the allow-list, "" without keys
  std::vector<std::string> allow{};  // nodes that may reach it, by name or NAME=VALUE; empty: all
  std::shared_ptr<RegionMemory> memory;
  /// Host memory that kernels reach: pinned at its first copy to or from a GPU. The copier's, until
  /// nobody uses the region any more.
  std::shared_ptr<void> pinned;
  std::atomic<std::uint32_t> uses{0};
  std::atomic<bool> closing{false};
  std::atomic<bool> kept{false};  // stays when its client dies

  /// What our own operations use. Null once the region is taken apart.
  std::shared_ptr<const RegisteredMemory> local() const;
  /// Whose keys peers hold, by card; null: the region does without that card. Other registrations
  /// than the local ones: a fence voids these while operations of ours may be using those.
  std::vector<std::shared_ptr<MemoryRegistration>> exported() const;
  void set_registered(std::shared_ptr<const RegisteredMemory> local,
                      std::vector<std::shared_ptr<MemoryRegistration>> exported);
  /// Voids the key that peers hold on this card, then puts `fresh` in its place.
  void void_key(std::size_t nic);
  void set_key(std::size_t nic, std::shared_ptr<MemoryRegistration> fresh);
  /// Whether a node of this name and these labels may reach it.
  bool allows(const std::string& node, const std::map<std::string, std::string>& labels) const;
  bool on_gpu() const { return memory && memory->gpu() >= 0; }
  /// No card reaches the memory: its pages cross by staging slots.
  bool needs_staging() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const RegisteredMemory> local_;
  std::vector<std::shared_ptr<MemoryRegistration>> exported_;
  // As it was registered: a key that is being renewed is missing for a moment, and no reason to
  // stage.
  bool no_card_reaches_ = true;
};

/// What to say when region.memory->lost().
Error lost_error(const Region& region);

/// Keeps a region alive and counted as in use.
class RegionUse {
 public:
  RegionUse() = default;
  explicit RegionUse(std::shared_ptr<Region> region);
  RegionUse(RegionUse&& other) noexcept = default;
  RegionUse& operator=(RegionUse&& other) noexcept;
  ~RegionUse();

  const Region* operator->() const { return region_.get(); }
  const Region& operator*() const { return *region_; }
  explicit operator bool() const { return region_ != nullptr; }
  const std::shared_ptr<Region>& region() const { return region_; }
  void reset();

 private:
  std::shared_ptr<Region> region_;
};

class RegionTable {
 public:
  /// Epochs count up from `first_epoch`. A service that restarts must not repeat those of the run
  /// before: derive it from the incarnation.
  explicit RegionTable(std::uint64_t first_epoch = 1) : next_epoch_(first_epoch) {}

  /// Takes the name, so that nobody else can while the memory is made and registered.
  Result<void> reserve(const std::string& name, std::size_t most_regions);
  /// Gives a reserved name back after a failure.
  void abandon(const std::string& name);
  /// Fills a reserved name in; sets the region's epoch.
  std::shared_ptr<Region> publish(std::shared_ptr<Region> region);

  /// kNotFound, kStaleRegion when `epoch` (0: any) is another or the region is closing.
  Result<RegionUse> use(const std::string& name, std::uint64_t epoch = 0);
  /// Refuses new uses from now on. Without `force` a region in use is kBusy and stays open.
  Result<std::shared_ptr<Region>> close(const std::string& name, bool force);
  /// Takes a closed region that nobody uses out of the table; false while it is still used.
  bool remove(const std::string& name);

  std::vector<std::shared_ptr<const Region>> list() const;
  /// Null: no such region. One that is closing is found, too.
  std::shared_ptr<const Region> find(const std::string& name) const;

  /// Forgets every region: the service ends.
  void clear();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Region>> regions_;  // null: reserved
  std::uint64_t next_epoch_;
};

}  // namespace penstock
