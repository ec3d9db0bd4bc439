// Memory that says it is on a GPU.
#pragma once

#include <string>
#include <vector>

#include "transport/memory/region_memory.hpp"

namespace penstock::test {

class GpuMemoryDouble final : public RegionMemory {
 public:
  explicit GpuMemoryDouble(std::size_t size) : bytes_(size) {}
  MemoryKind kind() const override { return MemoryKind::kCuda; }
  int gpu() const override { return 2; }
  std::span<std::byte> bytes() const override { return bytes_; }
  const std::string& shared_name() const override { return name_; }

 private:
  mutable std::vector<std::byte> bytes_;
  std::string name_;
};

}  // namespace penstock::test
