#include "transport/bench/raw_memory.hpp"

#include <random>

namespace penstock {

Result<RawMemory> RawMemory::allocate(std::uint64_t bytes, HugePages huge_pages) {
  std::random_device random;
  const std::uint64_t run = (static_cast<std::uint64_t>(random()) << 32) | random();
  const std::string name = fmt::format("penstock.raw.{:016x}", run);
  auto owner = SegmentOwner::claim(name);
  if (!owner) return tl::unexpected(owner.error());
  auto memory = allocate_shared_memory(name + ".1", bytes, -1, huge_pages);
  if (!memory) return tl::unexpected(memory.error());
  return RawMemory(std::move(*owner), std::move(*memory));
}

}  // namespace penstock
