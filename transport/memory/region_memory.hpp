// The bytes behind a region, whoever owns them. Unmapped when the last holder lets go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/error.hpp"
#include "transport/memory/huge_pages.hpp"

namespace penstock {

/// kCuda: on a GPU. bytes() is then a span of device addresses: good for offsets, kernels and
/// cards, never to be touched by the processor (transport/gpu/ has the ways to read, write and copy
/// it).
enum class MemoryKind : unsigned char { kHost, kCuda };

class RegionMemory {
 public:
  virtual ~RegionMemory() = default;
  virtual MemoryKind kind() const = 0;
  virtual std::span<std::byte> bytes() const = 0;
  /// Which GPU, as this process numbers them (gpu/inventory.hpp); -1 for host memory.
  virtual int gpu() const { return -1; }
  /// Under which another process maps it: "/name" for shm_open, "/folder/name" for open (a file on
  /// huge pages, mapped in whole pages of its file system); "" when it cannot be mapped.
  virtual const std::string& shared_name() const = 0;
  /// Its owner has taken memory away since (bus_fault.hpp): it is good for nothing any more.
  virtual bool lost() const { return false; }
};

/// Makes shared memory of exactly `size` bytes, mode 0600, bound to `numa_node` (-1: anywhere) and
/// touched before return (a large segment takes a while: call it off the actors' threads): a file
/// called `name` in a hugetlbfs mount that has room, where `huge_pages` allows it, else the POSIX
/// segment `/name`, for which transparent huge pages are advised unless kNever. The name goes when
/// the memory dies. Errors: kAlreadyExists, kResourceExhausted (says how much there is, what was
/// asked and how to make room), kInvalidArgument.
Result<std::shared_ptr<RegionMemory>> allocate_shared_memory(
    const std::string& name, std::uint64_t size, int numa_node,
    HugePages huge_pages = HugePages::kAuto);

/// Maps a client's own segment, or its file directly in a hugetlbfs mount ("/folder/name"). It must
/// exist and be at least offset + size bytes (both multiples of the page size are not required).
/// Never unlinked by us. Errors: kNotFound, kOutOfRange, kResourceExhausted when its sparse part
/// does not fit into /dev/shm or huge pages are short.
Result<std::shared_ptr<RegionMemory>> map_shared_memory(const std::string& name,
                                                        std::uint64_t offset, std::uint64_t size);

}  // namespace penstock
