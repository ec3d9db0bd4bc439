#include "client/cpp/region.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "client/cpp/core.hpp"

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

Region::Region(std::shared_ptr<Core> core, RegionInfo info)
    : core_(std::move(core)), info_(std::move(info)) {}

Region::Region(Region&& other) noexcept { *this = std::move(other); }

Region& Region::operator=(Region&& other) noexcept {
  if (this == &other) return *this;
  Region old(std::move(core_), std::exchange(info_, {}));
  std::swap(old.mapping_, mapping_);
  std::swap(old.mapping_bytes_, mapping_bytes_);
  mapped_ = std::exchange(other.mapped_, nullptr);
  mapping_ = std::exchange(other.mapping_, nullptr);
  mapping_bytes_ = std::exchange(other.mapping_bytes_, 0);
  core_ = std::move(other.core_);
  info_ = std::exchange(other.info_, {});
  return *this;
}

Region::~Region() {
  unmap();
  if (!core_) return;
  try {
    core_->call("release", {{"name", info_.name}, {"force", true}});
  } catch (const Error&) {
    // Nobody to tell; the service knows.
  }
}

void Region::release(bool force) {
  if (!core_) {
    throw Error("INVALID_ARGUMENT",
                "region '" + info_.name + "' is detached or released; use Client::release");
  }
  core_->call("release", {{"name", info_.name}, {"force", force}},
              core_->options().memory_timeout_ms);
  core_.reset();
  unmap();
}

void Region::map() {
  if (mapped_ != nullptr) return;
  if (info_.shared_name.empty()) throw cannot_map(info_, "the service shares no memory for it");
  File file{open_shared(info_.shared_name)};
  if (file.fd < 0) {
    throw cannot_map(info_, std::string(std::strerror(errno)) +
                                "; mapping needs the service on this machine, as the same user");
  }
  auto page_bytes = page_bytes_of(file.fd);
  auto lead = info_.shared_offset % page_bytes;
  struct stat status {};
  std::uint64_t end = 0;
  if (::fstat(file.fd, &status) != 0 ||
      __builtin_add_overflow(info_.shared_offset, info_.bytes, &end) ||
      static_cast<std::uint64_t>(status.st_size) < end) {
    throw cannot_map(info_, "the segment is smaller than the region");
  }
  auto bytes =
      static_cast<std::size_t>((info_.bytes + lead + page_bytes - 1) / page_bytes * page_bytes);
  void* mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd,
                         static_cast<off_t>(info_.shared_offset - lead));
  if (mapping == MAP_FAILED) throw cannot_map(info_, std::strerror(errno));
  mapping_ = mapping;
  mapping_bytes_ = bytes;
  mapped_ = static_cast<std::byte*>(mapping) + lead;
}

void Region::unmap() noexcept {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
  mapping_ = nullptr;
  mapped_ = nullptr;
  mapping_bytes_ = 0;
}

}  // namespace penstock::client
