// The bare loop's memory: of the same kind as a service's regions, so that a ratio compares
// software and not sizes of pages.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "transport/error.hpp"
#include "transport/memory/region_memory.hpp"
#include "transport/memory/segment_owner.hpp"

namespace penstock {

/// Touched shared memory, gone with this or, after a kill, with the next start of a service.
class RawMemory {
 public:
  static Result<RawMemory> allocate(std::uint64_t bytes, HugePages huge_pages);

  std::span<std::byte> bytes() const { return memory_->bytes(); }
  const std::shared_ptr<RegionMemory>& memory() const { return memory_; }

 private:
  RawMemory(SegmentOwner owner, std::shared_ptr<RegionMemory> memory)
      : owner_(std::move(owner)), memory_(std::move(memory)) {}

  SegmentOwner owner_;  // goes after the memory
  std::shared_ptr<RegionMemory> memory_;
};

}  // namespace penstock
