#include "actors/monitor/process_report.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

std::uint64_t open_files_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

std::uint64_t open_files() {
  std::error_code error;
  std::uint64_t count = 0;
  for (std::filesystem::directory_iterator file("/proc/self/fd", error), end; file != end;
       file.increment(error))
    ++count;
  // To look takes a descriptor, too.
  if (error == std::errc::too_many_files_open) return open_files_limit();
  return count > 0 ? count - 1 : 0;
}

/// The second number of /proc/PID/statm, in pages (proc(5)).
std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

nlohmann::json process_report() {
  return {{"open_files", open_files()},
          {"open_files_limit", open_files_limit()},
          {"resident_bytes", resident_bytes()}};
}

}  // namespace penstock
