// Whether this machine has room for what a command is about to allocate.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::app {

struct MemoryNeed {
  std::uint64_t shared_bytes = 0;  // in /dev/shm
  std::uint64_t other_bytes = 0;
};

/// Throws Exit kFailed that says what is there, what is needed, and that `option` makes it less.
void require_memory(const MemoryNeed& need, const std::string& option);

/// Throws UsageError unless pages of `page_bytes` divide a region and page lists can count them.
void check_pages(std::uint64_t region_bytes, std::uint64_t page_bytes);

}  // namespace penstock::app
