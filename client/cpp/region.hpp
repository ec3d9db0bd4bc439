// A region of memory that the service can move from and to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "error.hpp"

namespace penstock::client {

struct RegionInfo {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t epoch = 0;  // changes when the name is released and made again
  std::string device;
  std::string kind;         // "host" or "cuda"
  std::string shared_name;  // "/name": shm_open, "/folder/name": open; "": cannot be mapped
  std::uint64_t shared_offset = 0;
  // Of memory of a GPU:
  int gpu = -1;  // as the service numbers them
  std::string gpu_bus;
  std::string reach;  // "gpudirect": cards reach it; "staged": it crosses by staging memory
  /// What cudaIpcOpenMemHandle takes, 64 bytes; the region starts at `ipc_offset` of the
  /// allocation. Empty where the memory is a client's own.
  std::vector<std::byte> ipc_handle;
  std::uint64_t ipc_offset = 0;
};

class Core;
class RegionState;

/// Owns the region at the service: released on destruction unless detached. Move-only.
///
/// When the service was restarted, the client makes the region there again: epoch and shared name
/// are new ones then, data() stays where it is. Memory of the client's own keeps what it holds;
/// memory that the service had allocated is zero again. Options::restarted tells when.
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

  /// As the service last described it.
  RegionInfo info() const;
  std::string name() const { return info().name; }
  std::uint64_t bytes() const { return info().bytes; }
  std::uint64_t epoch() const { return info().epoch; }

  /// The memory itself; empty when it was not mapped (MapMemory::kNo).
  std::span<std::byte> data() const;

  /// Unmaps and releases now. Without `force`, Error BUSY while a transfer uses it. After an error
  /// the region is still this one's.
  void release(bool force = false);
  /// The region stays at the service when this object goes; a restarted service has it no more.
  void detach();

  /// For Client only. A null `core` gives a detached region.
  Region(std::shared_ptr<Core> core, std::shared_ptr<RegionState> state);
  void map();

 private:
  std::shared_ptr<Core> core_;  // null: detached
  std::shared_ptr<RegionState> state_;
};

}  // namespace penstock::client
