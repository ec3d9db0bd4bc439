// The bytes behind a region, whoever owns them. Unmapped when the last holder lets go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/error.hpp"

namespace penstock {

enum class MemoryKind : unsigned char { kHost };

class RegionMemory {
 public:
  virtual ~RegionMemory() = default;
  virtual MemoryKind kind() const = 0;
  virtual std::span<std::byte> bytes() const = 0;
  /// Name under which another process maps it (shm_open), "" when it cannot be mapped.
  virtual const std::string& shared_name() const = 0;
  /// Its owner has taken memory away since (bus_fault.hpp): it is good for nothing any more.
  virtual bool lost() const { return false; }
};

/// Creates a POSIX shared-memory segment `/name`, mode 0600, of exactly `size` bytes, bound to
/// `numa_node` (-1: anywhere) and touched before return (a large segment takes a while: call it off
/// the actors' threads). The segment is unlinked when the memory dies. Errors: kAlreadyExists,
/// kResourceExhausted (says how much /dev/shm has and what was asked), kInvalidArgument.
Result<std::shared_ptr<RegionMemory>> allocate_shared_memory(const std::string& name,
                                                             std::uint64_t size, int numa_node);

/// Maps a client's own segment. It must exist and be at least offset + size bytes (both multiples
/// of the page size are not required). Never unlinked by us. Errors: kNotFound, kOutOfRange,
/// kResourceExhausted when its sparse part does not fit into /dev/shm.
Result<std::shared_ptr<RegionMemory>> map_shared_memory(const std::string& name,
                                                        std::uint64_t offset, std::uint64_t size);

}  // namespace penstock
