#include "apps/penstock/machine_room.hpp"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <fstream>
#include <limits>

#include "apps/penstock/globals.hpp"
#include "client/cli/quantity.hpp"
#include "client/cli/usage_error.hpp"

namespace penstock::app {
namespace {

std::uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    std::uint64_t kib = 0;
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return UINT64_MAX;  // unknown: let it be tried
}

std::uint64_t free_shared_memory() {
  struct statvfs status {};
  if (::statvfs("/dev/shm", &status) != 0) return 0;
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

void require(const char* what, std::uint64_t there, std::uint64_t needed,
             const std::string& option) {
  if (needed <= there) return;
  throw Exit(ExitCode::kFailed,
             fmt::format("{} has {} free and {} are needed: make {} smaller, or give it more", what,
                         cli::format_bytes(there), cli::format_bytes(needed), option));
}

}  // namespace

void require_memory(const MemoryNeed& need, const std::string& option) {
  require("/dev/shm", free_shared_memory(), need.shared_bytes, option);
  require("the memory of this machine", available_memory(), need.shared_bytes + need.other_bytes,
          option);
}

void check_pages(std::uint64_t region_bytes, std::uint64_t page_bytes) {
  if (page_bytes == 0 || region_bytes == 0 || region_bytes % page_bytes != 0) {
    throw cli::UsageError(
        fmt::format("{} bytes are not a whole number of pages of {} bytes, one at least",
                    region_bytes, page_bytes));
  }
  if (region_bytes / page_bytes > UINT32_MAX) {
    throw cli::UsageError(fmt::format("{} pages of {} bytes are more than a page list can count",
                                      region_bytes / page_bytes, page_bytes));
  }
}

}  // namespace penstock::app
