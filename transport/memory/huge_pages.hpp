// Huge pages that the operator reserved: hugetlbfs mounts and how much is free in them.
//
// A page of 4 KiB costs a TLB entry and a fault of its own, which random pages of a large region
// feel. Where a hugetlbfs is mounted, regions live in files there; elsewhere the kernel is advised
// to use transparent huge pages, which it does in /dev/shm only when that is mounted with huge=.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "transport/error.hpp"

namespace penstock {

enum class HugePages : unsigned char {
  kAuto,    // hugetlbfs where a mount has room, else transparent ones by advice
  kNever,   // ordinary pages: no hugetlbfs, no advice
  kAlways,  // hugetlbfs or an error
};

struct HugePageMount {
  std::filesystem::path folder;
  std::uint64_t page_bytes = 0;
  std::uint64_t total_pages = 0;
  std::uint64_t free_pages = 0;  // that no mapping has reserved
  friend bool operator==(const HugePageMount&, const HugePageMount&) = default;
};

/// The hugetlbfs mounts of this process's mount namespace, those with most free bytes first.
/// `mounts` and `counts` are there for tests: what to read in place of the kernel's files.
std::vector<HugePageMount> huge_page_mounts(
    const std::filesystem::path& mounts = "/proc/self/mounts",
    const std::filesystem::path& counts = "/sys/kernel/mm/hugepages");

/// What `huge=` says in the mount options of /dev/shm: "never" unless it was given.
std::string shared_memory_huge_option(const std::filesystem::path& mounts = "/proc/self/mounts");

/// `bytes` rounded up to whole pages of `mount`; 0 when that does not fit into 64 bits.
std::uint64_t rounded_up(std::uint64_t bytes, const HugePageMount& mount);

/// The first of `mounts` that has room for `bytes`. kResourceExhausted says how many pages are
/// free, how many are needed, and how to reserve them.
Result<HugePageMount> mount_with_room(const std::vector<HugePageMount>& mounts,
                                      std::uint64_t bytes);

/// The mount, if any, in which `path` is a plain file of its top folder.
const HugePageMount* mount_of(const std::vector<HugePageMount>& mounts,
                              const std::filesystem::path& path);

}  // namespace penstock
