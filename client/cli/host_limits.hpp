// What a machine must allow before a service can work on it, judged from facts that somebody else
// gathered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

struct Finding {
  enum class Severity : unsigned char { kOk, kWarning, kProblem };
  Severity severity = Severity::kOk;
  std::string subject;  // "open files"
  std::string found;    // "soft limit 1024"
  std::string advice;   // what to do, "" when ok
};

const char* name_of(Finding::Severity severity);
bool has_problem(const std::vector<Finding>& findings);

inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

struct HostFacts {
  std::uint64_t open_files = 0;                     // soft limit
  std::uint64_t locked_bytes = 0;                   // soft limit of RLIMIT_MEMLOCK
  std::optional<std::uint64_t> shared_total_bytes;  // of /dev/shm; none: not mounted
  std::uint64_t shared_free_bytes = 0;
  std::uint64_t memory_bytes = 0;
  std::string huge_page_folder;  // of the hugetlbfs mount with most room; "": none is mounted
  std::uint64_t huge_page_bytes = 0;
  std::uint64_t huge_pages = 0;       // reserved by the operator
  std::uint64_t free_huge_pages = 0;  // and not in use
  std::string shared_huge;            // huge= of /dev/shm: "never", "advise", ...
  std::string shmem_enabled;          // the kernel's word over it: "deny", "force" or neither
  unsigned allowed_cpus = 0;
  unsigned online_cpus = 0;
  std::string allowed_cpu_list;  // "0-3,8"
  /// Whether the provider pins memory: verbs and efa do, tcp and shm do not.
  bool provider_locks_memory = false;
};

std::vector<Finding> judge(const HostFacts& facts);

}  // namespace penstock::cli
