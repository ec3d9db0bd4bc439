#include "client/cpp/region_state.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock::client {
namespace {

struct File {
  int fd = -1;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
};

/// "/name" is a segment of /dev/shm, "/folder/name" a file on huge pages.
int open_shared(const std::string& name) {
  if (name.find('/', 1) == std::string::npos)
    return ::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0);
  return ::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
}

/// What a mapping of it must be a multiple of.
std::uint64_t page_bytes_of(int fd) {
  constexpr auto kHugetlbfs = 0x958458f6;
  struct statfs system {};
  if (::fstatfs(fd, &system) == 0 && system.f_type == kHugetlbfs) {
    return static_cast<std::uint64_t>(system.f_bsize);
  }
  return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

Error cannot_map(const RegionInfo& region, const std::string& why) {
  return Error("UNSUPPORTED", "region '" + region.name + "' (shared memory '" + region.shared_name +
                                  "') cannot be mapped here: " + why);
}

}  // namespace

RegionInfo RegionState::info() const {
  std::lock_guard lock(mutex_);
  return info_;
}

std::span<std::byte> RegionState::data() const {
  std::lock_guard lock(mutex_);
  return {mapped_, mapped_ != nullptr ? info_.bytes : 0};
}

/// Maps the region's segment, at `place` when it is not null; the caller's lock is held.
void* RegionState::map_at(const RegionInfo& info, void* place, std::size_t& bytes,
                          std::size_t& lead) const {
  if (info.shared_name.empty()) throw cannot_map(info, "the service shares no memory for it");
  File file{open_shared(info.shared_name)};
  if (file.fd < 0) {
    throw cannot_map(info, std::string(std::strerror(errno)) +
                               "; mapping needs the service on this machine, as the same user");
  }
  auto page_bytes = page_bytes_of(file.fd);
  lead = static_cast<std::size_t>(info.shared_offset % page_bytes);
  struct stat status {};
  std::uint64_t end = 0;
  if (::fstat(file.fd, &status) != 0 ||
      __builtin_add_overflow(info.shared_offset, info.bytes, &end) ||
      static_cast<std::uint64_t>(status.st_size) < end) {
    throw cannot_map(info, "the segment is smaller than the region");
  }
  const auto wanted =
      static_cast<std::size_t>((info.bytes + lead + page_bytes - 1) / page_bytes * page_bytes);
  if (place != nullptr && wanted != bytes) {
    throw cannot_map(info, "its pages are of another size than before");
  }
  bytes = wanted;
  void* mapping =
      ::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (place != nullptr ? MAP_FIXED : 0),
             file.fd, static_cast<off_t>(info.shared_offset - lead));
  if (mapping == MAP_FAILED) throw cannot_map(info, std::strerror(errno));
  return mapping;
}

void RegionState::map() {
  std::lock_guard lock(mutex_);
  if (mapped_ != nullptr) return;
  std::size_t bytes = 0, lead = 0;
  mapping_ = map_at(info_, nullptr, bytes, lead);
  mapping_bytes_ = bytes;
  mapped_ = static_cast<std::byte*>(mapping_) + lead;
}

void RegionState::unmap() noexcept {
  std::lock_guard lock(mutex_);
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
  mapping_ = nullptr;
  mapped_ = nullptr;
  mapping_bytes_ = 0;
}

void RegionState::renew(RegionInfo info) {
  std::lock_guard lock(mutex_);
  const bool same_memory =
      info.shared_name == info_.shared_name && info.shared_offset == info_.shared_offset;
  info_ = std::move(info);
  if (mapping_ == nullptr || same_memory) return;
  std::size_t lead = 0;
  map_at(info_, mapping_, mapping_bytes_, lead);
}

}  // namespace penstock::client
