#include "actors/device/region_table.hpp"

#include <algorithm>
#include <utility>

namespace penstock {

std::shared_ptr<const RegisteredMemory> Region::local() const {
  std::lock_guard lock(mutex_);
  return local_;
}

std::vector<std::shared_ptr<MemoryRegistration>> Region::exported() const {
  std::lock_guard lock(mutex_);
  return exported_;
}

void Region::set_registered(std::shared_ptr<const RegisteredMemory> local,
                            std::vector<std::shared_ptr<MemoryRegistration>> exported) {
  // The old ones go after the lock: closing a registration may take 100s of ms.
  std::lock_guard lock(mutex_);
  local_.swap(local);
  exported_.swap(exported);
  no_card_reaches_ = std::none_of(exported_.begin(), exported_.end(),
                                  [](const auto& registration) { return registration != nullptr; });
}

bool Region::needs_staging() const {
  if (!on_gpu()) return false;
  std::lock_guard lock(mutex_);
  return no_card_reaches_;
}

bool Region::allows(const std::string& node,
                    const std::map<std::string, std::string>& labels) const {
  const auto fits = [&](const std::string& each) {
    const std::size_t equals = each.find('=');
    if (equals == std::string::npos) return each == node;
    const auto label = labels.find(each.substr(0, equals));
    return label != labels.end() && label->second == each.substr(equals + 1);
  };
  return allow.empty() || std::any_of(allow.begin(), allow.end(), fits);
}

void Region::void_key(std::size_t nic) { set_key(nic, nullptr); }

void Region::set_key(std::size_t nic, std::shared_ptr<MemoryRegistration> fresh) {
  std::lock_guard lock(mutex_);
  exported_.at(nic).swap(fresh);  // the old one goes after the lock, before this returns
}

RegionUse::RegionUse(std::shared_ptr<Region> region) : region_(std::move(region)) {
  if (region_) region_->uses.fetch_add(1);
}

RegionUse& RegionUse::operator=(RegionUse&& other) noexcept {
  if (this != &other) {
    reset();
    region_ = std::move(other.region_);
  }
  return *this;
}

RegionUse::~RegionUse() { reset(); }

void RegionUse::reset() {
  if (!region_) return;
  region_->uses.fetch_sub(1);
  region_.reset();
}

Result<void> RegionTable::reserve(const std::string& name, std::size_t most_regions) {
  std::lock_guard lock(mutex_);
  if (regions_.contains(name))
    return fail(ErrorCode::kAlreadyExists,
                "region '{}' exists already: release it first or choose another name", name);
  if (regions_.size() >= most_regions)
    return fail(ErrorCode::kResourceExhausted,
                "{} regions exist and limits.regions allows no more: release some",
                regions_.size());
  regions_.emplace(name, nullptr);
  return {};
}

void RegionTable::abandon(const std::string& name) {
  std::lock_guard lock(mutex_);
  auto found = regions_.find(name);
  if (found != regions_.end() && !found->second) regions_.erase(found);
}

std::shared_ptr<Region> RegionTable::publish(std::shared_ptr<Region> region) {
  std::lock_guard lock(mutex_);
  region->epoch = next_epoch_++;
  regions_[region->name] = region;
  return region;
}

Error lost_error(const Region& region) {
  return {
      ErrorCode::kStaleRegion,
      fmt::format("region '{}' lost memory: its segment {} was made shorter or /dev/shm is full; "
                  "release it and register it again",
                  region.name, region.memory->shared_name())};
}

Result<RegionUse> RegionTable::use(const std::string& name, std::uint64_t epoch) {
  std::lock_guard lock(mutex_);
  auto found = regions_.find(name);
  if (found == regions_.end() || !found->second)
    return fail(ErrorCode::kNotFound, "no region '{}' here: allocate or register it first", name);
  Region& region = *found->second;
  if (region.closing)
    return fail(ErrorCode::kStaleRegion, "region '{}' (epoch {}) is being released", name,
                region.epoch);
  if (epoch != 0 && epoch != region.epoch)
    return fail(ErrorCode::kStaleRegion,
                "region '{}' has epoch {} now, epoch {} was asked for: look it up again", name,
                region.epoch, epoch);
  if (region.memory && region.memory->lost()) return tl::unexpected(lost_error(region));
  return RegionUse(found->second);
}

Result<std::shared_ptr<Region>> RegionTable::close(const std::string& name, bool force) {
  std::lock_guard lock(mutex_);
  auto found = regions_.find(name);
  if (found == regions_.end() || !found->second)
    return fail(ErrorCode::kNotFound, "no region '{}' here", name);
  const std::uint32_t uses = found->second->uses;
  if (uses > 0 && !force)
    return fail(ErrorCode::kBusy,
                "region '{}' is used by {} transfers: wait, cancel them, or release with force",
                name, uses);
  if (found->second->closing.exchange(true))
    return fail(ErrorCode::kBusy, "region '{}' is being released already", name);
  return found->second;
}

bool RegionTable::remove(const std::string& name) {
  std::lock_guard lock(mutex_);
  auto found = regions_.find(name);
  if (found == regions_.end()) return true;
  if (!found->second || !found->second->closing || found->second->uses > 0) return false;
  regions_.erase(found);
  return true;
}

void RegionTable::clear() {
  std::lock_guard lock(mutex_);
  regions_.clear();
}

std::shared_ptr<const Region> RegionTable::find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = regions_.find(name);
  const bool there = found != regions_.end() && found->second && !found->second->internal;
  return there ? found->second : nullptr;
}

std::vector<std::shared_ptr<const Region>> RegionTable::list() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Region>> regions;
  for (const auto& [name, region] : regions_)
    if (region && !region->internal) regions.push_back(region);
  return regions;
}

}  // namespace penstock
