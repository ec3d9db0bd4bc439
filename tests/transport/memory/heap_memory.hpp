// A region's bytes on the heap of the test.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "transport/memory/region_memory.hpp"

namespace penstock::test {

class HeapMemory final : public RegionMemory {
 public:
  explicit HeapMemory(std::size_t size) : bytes_(size) {}
  MemoryKind kind() const override { return MemoryKind::kHost; }
  std::span<std::byte> bytes() const override { return bytes_; }
  const std::string& shared_name() const override { return name_; }

 private:
  mutable std::vector<std::byte> bytes_;
  std::string name_;
};

}  // namespace penstock::test
