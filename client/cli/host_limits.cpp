#include "client/cli/host_limits.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "client/cli/quantity.hpp"

namespace penstock::cli {
namespace {

using Severity = Finding::Severity;

// One socket per peer and card and a few per client: enough for some hundred peers.
constexpr std::uint64_t kEnoughOpenFiles = 4096;
constexpr std::uint64_t kFewestOpenFiles = 256;
constexpr std::uint64_t kEnoughSharedBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kFewestSharedBytes = std::uint64_t{64} << 20;

Finding open_files(const HostFacts& facts) {
  Finding finding{
      Severity::kOk, "open files",
      facts.open_files == kUnlimited ? "unlimited" : fmt::format("limit {}", facts.open_files), ""};
  if (facts.open_files >= kEnoughOpenFiles) return finding;
  finding.severity = facts.open_files < kFewestOpenFiles ? Severity::kProblem : Severity::kWarning;
  finding.advice = "ulimit -n 65536, or LimitNOFILE=65536 in the service's systemd unit";
  return finding;
}

Finding locked_memory(const HostFacts& facts) {
  Finding finding{Severity::kOk, "locked memory",
                  facts.locked_bytes == kUnlimited
                      ? "unlimited"
                      : fmt::format("limit {}", format_bytes(facts.locked_bytes)),
                  ""};
  if (facts.locked_bytes >= facts.memory_bytes) return finding;
  if (!facts.provider_locks_memory) {
    finding.found += "; this provider locks none";
    return finding;
  }
  finding.severity = Severity::kProblem;
  finding.advice =
      "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's systemd unit (containers: "
      "--ulimit memlock=-1)";
  return finding;
}

Finding shared_memory(const HostFacts& facts) {
  Finding finding{Severity::kOk, "shared memory", "", ""};
  if (!facts.shared_total_bytes) {
    finding.severity = Severity::kProblem;
    finding.found = "/dev/shm is not mounted";
    finding.advice = "mount -t tmpfs tmpfs /dev/shm";
    return finding;
  }
  finding.found = fmt::format("/dev/shm: {} free of {}", format_bytes(facts.shared_free_bytes),
                              format_bytes(*facts.shared_total_bytes));
  if (facts.shared_free_bytes >= kEnoughSharedBytes) return finding;
  finding.severity =
      facts.shared_free_bytes < kFewestSharedBytes ? Severity::kProblem : Severity::kWarning;
  finding.advice =
      "host regions live there: remove stale segments, or mount -o remount,size=50% /dev/shm "
      "(containers: --shm-size=8g)";
  return finding;
}

/// Only told, never a failure: regions do without, but random small pages move faster with them.
Finding huge_pages(const HostFacts& facts) {
  Finding finding{Severity::kOk, "huge pages", "", ""};
  finding.found = facts.huge_page_folder.empty()
                      ? "no hugetlbfs is mounted"
                      : fmt::format("{}: {} of {} pages of {} free", facts.huge_page_folder,
                                    facts.free_huge_pages, facts.huge_pages,
                                    format_bytes(facts.huge_page_bytes));
  finding.found += fmt::format("; /dev/shm has huge={}", facts.shared_huge);
  if (!facts.shmem_enabled.empty()) {
    finding.found += fmt::format(", shmem_enabled is {}", facts.shmem_enabled);
  }
  const bool transparent = facts.shmem_enabled == "force" ||
                           (facts.shared_huge != "never" && facts.shmem_enabled != "deny");
  if (facts.free_huge_pages > 0 || transparent) return finding;
  finding.advice =
      "host regions are faster on them. Reserved ones: echo N > /proc/sys/vm/nr_hugepages, and "
      "mount "
      "-t hugetlbfs none /dev/hugepages. Or transparent ones: mount -o remount,huge=advise "
      "/dev/shm";
  if (facts.shmem_enabled == "deny") {
    finding.advice += ", after echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";
  }
  return finding;
}

Finding cpus(const HostFacts& facts) {
  Finding finding{Severity::kOk, "CPUs",
                  fmt::format("{} of {} allowed ({})", facts.allowed_cpus, facts.online_cpus,
                              facts.allowed_cpu_list),
                  ""};
  if (facts.allowed_cpus >= 2) return finding;
  finding.severity = Severity::kWarning;
  finding.advice =
      "the poller needs a core of its own beside the rest: widen the CPU set (taskset, cpuset, "
      "container limits)";
  return finding;
}

}  // namespace

const char* name_of(Finding::Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "ok";
    case Severity::kWarning:
      return "warning";
    case Severity::kProblem:
      return "problem";
  }
  return "problem";
}

bool has_problem(const std::vector<Finding>& findings) {
  return std::ranges::any_of(
      findings, [](const Finding& finding) { return finding.severity == Severity::kProblem; });
}

std::vector<Finding> judge(const HostFacts& facts) {
  return {open_files(facts), locked_memory(facts), shared_memory(facts), huge_pages(facts),
          cpus(facts)};
}

}  // namespace penstock::cli
