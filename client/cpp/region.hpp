// A region of memory that the service can move from and to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "error.hpp"

namespace penstock::client {

struct RegionInfo {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t epoch = 0;  // changes when the name is released and made again
  std::string device;
  std::string kind;         // "host"
  std::string shared_name;  // "/name": shm_open, "/folder/name": open; "": cannot be mapped
  std::uint64_t shared_offset = 0;
};

class Core;

/// Owns the region at the service: released on destruction unless detached. Move-only.
class Region {
 public:
  Region() = default;
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  /// Unmaps, and releases with force: transfers that use the region are cancelled first. Failure is
  /// not told; call release() to learn it.
  ~Region();

  const RegionInfo& info() const { return info_; }
  const std::string& name() const { return info_.name; }
  std::uint64_t bytes() const { return info_.bytes; }
  std::uint64_t epoch() const { return info_.epoch; }

  /// The memory itself; empty when it was not mapped (MapMemory::kNo).
  std::span<std::byte> data() const { return {mapped_, mapped_ ? info_.bytes : 0}; }

  /// Unmaps and releases now. Without `force`, Error BUSY while a transfer uses it. After an error
  /// the region is still this one's.
  void release(bool force = false);
  /// The region stays at the service when this object goes.
  void detach() { core_.reset(); }

  /// For Client only. A null `core` gives a detached region.
  Region(std::shared_ptr<Core> core, RegionInfo info);
  void map();

 private:
  void unmap() noexcept;

  std::shared_ptr<Core> core_;  // null: detached
  RegionInfo info_;
  std::byte* mapped_ = nullptr;
  void* mapping_ = nullptr;  // as mmap gave it: starts on a page, before mapped_
  std::size_t mapping_bytes_ = 0;
};

}  // namespace penstock::client
