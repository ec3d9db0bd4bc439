// Host memory that another process can map: POSIX shared memory, ours or a client's.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "transport/memory/bus_fault.hpp"
#include "transport/memory/huge_pages.hpp"
#include "transport/memory/numa_bind.hpp"
#include "transport/memory/region_memory.hpp"

namespace penstock {
namespace {

/// Closed when it goes; a mapping lives on without it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// "/name" is a segment of /dev/shm, "/folder/name" a file on huge pages.
bool is_path(const std::string& name) { return name.find('/', 1) != std::string::npos; }

/// A segment that we created: its name is taken back when this goes.
class OwnedName {
 public:
  explicit OwnedName(std::string name) : name_(std::move(name)) {}
  OwnedName(OwnedName&& other) noexcept : name_(std::exchange(other.name_, {})) {}
  OwnedName& operator=(OwnedName&&) = delete;
  ~OwnedName() {
    if (name_.empty()) return;
    if (is_path(name_))
      unlink(name_.c_str());
    else
      shm_unlink(name_.c_str());
  }

 private:
  std::string name_;
};

class Mapping {
 public:
  /// `skip` bytes at the front, and what is left of `length` behind `size` bytes, only align the
  /// mapping to its pages.
  Mapping(void* address, std::uint64_t length, std::uint64_t skip, std::uint64_t size,
          std::uint64_t page_bytes)
      : address_(static_cast<std::byte*>(address)),
        length_(length),
        skip_(skip),
        size_(size),
        page_bytes_(page_bytes) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)),
        length_(other.length_),
        skip_(other.skip_),
        size_(other.size_),
        page_bytes_(other.page_bytes_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (address_ != nullptr) munmap(address_, length_);
  }
  std::span<std::byte> whole() const { return {address_, length_}; }
  std::span<std::byte> bytes() const { return {address_ + skip_, size_}; }
  std::uint64_t page_bytes() const { return page_bytes_; }

 private:
  std::byte* address_;
  std::uint64_t length_;
  std::uint64_t skip_;
  std::uint64_t size_;
  std::uint64_t page_bytes_;
};

class SharedMemory : public RegionMemory {
 public:
  SharedMemory(std::string name, Mapping mapping, std::optional<OwnedName> owned)
      : name_(std::move(name)),
        owned_(std::move(owned)),
        mapping_(std::move(mapping)),
        guard_(mapping_.whole(), mapping_.page_bytes()) {}
  MemoryKind kind() const override { return MemoryKind::kHost; }
  std::span<std::byte> bytes() const override { return mapping_.bytes(); }
  const std::string& shared_name() const override { return name_; }
  bool lost() const override { return guard_.lost(); }

 private:
  std::string name_;
  std::optional<OwnedName> owned_;
  Mapping mapping_;
  BusFaultGuard guard_;
};

/// "/name" from "name" or "/name". Names come from clients: nothing that means more than a file
/// directly below /dev/shm may pass.
Result<std::string> segment_name(const std::string& name) {
  constexpr std::size_t kMaxLength = 250;
  const std::string bare = name.starts_with('/') ? name.substr(1) : name;
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (bare.size() > kMaxLength)
    return fail(ErrorCode::kInvalidArgument,
                "a shared-memory name of {} characters; at most {} are allowed", bare.size(),
                kMaxLength);
  if (bare.empty() || bare == "." || bare == ".." || !std::ranges::all_of(bare, allowed))
    return fail(ErrorCode::kInvalidArgument,
                "'{}' is no shared-memory name; use letters, digits, '.', '_' and '-'", name);
  return "/" + bare;
}

std::uint64_t page_size() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

tl::unexpected<Error> out_of_space(const std::string& name, std::uint64_t asked,
                                   const struct statvfs& file_system) {
  const std::uint64_t free = file_system.f_bavail * file_system.f_frsize;
  const std::uint64_t total = file_system.f_blocks * file_system.f_frsize;
  return fail(ErrorCode::kResourceExhausted,
              "segment {}: {} bytes asked, /dev/shm has {} free of {}; release regions or make it "
              "larger (mount -o remount,size=BYTES /dev/shm, docker run --shm-size)",
              name, asked, free, total);
}

/// Refuses before anything is allocated what cannot fit.
Result<void> check_space(const Descriptor& fd, const std::string& name, std::uint64_t asked) {
  struct statvfs file_system {};
  if (fstatvfs(fd.get(), &file_system) != 0)
    return fail(ErrorCode::kInternal, "segment {}: fstatvfs: {}", name, std::strerror(errno));
  const bool unlimited = file_system.f_blocks == 0;  // tmpfs mounted with size=0
  const std::uint64_t rounded = (asked - 1) / file_system.f_frsize + 1;
  if (!unlimited && rounded > file_system.f_bavail) return out_of_space(name, asked, file_system);
  return {};
}

/// In whole pages of `page_bytes`, as huge pages need it.
Result<Mapping> map(const Descriptor& fd, const std::string& name, std::uint64_t offset,
                    std::uint64_t size, std::uint64_t page_bytes) {
  const std::uint64_t skip = offset % page_bytes;
  const std::uint64_t pages = (size - 1 + skip) / page_bytes + 1;
  const std::uint64_t length = pages * page_bytes;
  void* address = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(),
                       static_cast<off_t>(offset - skip));
  if (address == MAP_FAILED)
    return fail(ErrorCode::kResourceExhausted,
                "segment {}: mapping {} bytes at {}: {}; see the address-space limit (ulimit -v), "
                "vm.max_map_count and, on huge pages, how many are free",
                name, size, offset, std::strerror(errno));
  return Mapping(address, length, skip, size, page_bytes);
}

/// Kernels before 5.14 have no MADV_POPULATE_WRITE: allocate first, so that a full /dev/shm is an
/// error here and no SIGBUS at the first touch.
int allocate_and_touch(const Descriptor& fd, std::span<std::byte> memory) {
  if (const int error = posix_fallocate(fd.get(), 0, static_cast<off_t>(memory.size())); error != 0)
    return error;
  for (std::uint64_t at = 0; at < memory.size(); at += page_size())
    static_cast<volatile std::byte&>(memory[at]) = std::byte{0};
  return 0;
}

/// Touching through the mapping, not the descriptor: it follows the huge-page advice.
int populate(const Descriptor& fd, std::span<std::byte> memory) {
  int rc = 0;
  do rc = madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE);
  while (rc != 0 && (errno == EINTR || errno == EAGAIN));
  if (rc == 0) return 0;
  return errno == EINVAL ? allocate_and_touch(fd, memory) : errno;
}

Result<void> touch_all(const Descriptor& fd, const std::string& name, std::span<std::byte> memory) {
  const int error = populate(fd, memory);
  if (error == 0) return {};
  struct statvfs file_system {};
  // EFAULT is what populating reports when a plain touch would have been a SIGBUS.
  const bool full = error == ENOSPC || error == EFAULT;
  if (full && fstatvfs(fd.get(), &file_system) == 0)
    return out_of_space(name, memory.size(), file_system);
  return fail(ErrorCode::kResourceExhausted,
              "segment {}: the kernel gave out while touching {} bytes: {}; free memory (on that "
              "NUMA node) or ask for less",
              name, memory.size(), std::strerror(error));
}

/// Of pages that are there already: else a fault each at the first transfer, which costs more than
/// a copy of 4 KiB. Only advice: kernels before 5.14 do not know it. In slices, since others who
/// map or unmap memory wait for each.
void enter_into_page_table(std::span<std::byte> memory) {
  constexpr std::size_t kSlice = 16u << 20;
  for (std::size_t at = 0; at < memory.size(); at += kSlice) {
    const auto slice = memory.subspan(at, std::min(kSlice, memory.size() - at));
    if (madvise(slice.data(), slice.size(), MADV_POPULATE_WRITE) != 0) return;
  }
}

tl::unexpected<Error> cannot_open(const std::string& name) {
  const int error = errno;
  const std::string path = is_path(name) ? name : "/dev/shm" + name;
  switch (error) {
    case EEXIST:
      return fail(ErrorCode::kAlreadyExists,
                  "segment {} is there already; choose another name, or remove {} if no process "
                  "uses it",
                  name, path);
    case ENOENT:
      return fail(ErrorCode::kNotFound,
                  "no segment {}: {} is not there; create it first, in the same IPC and mount "
                  "namespace",
                  name, path);
    case ELOOP:
      return fail(ErrorCode::kInvalidArgument, "segment {} is a symbolic link", name);
    case EACCES:
    case EPERM:
      return fail(ErrorCode::kDenied,
                  "segment {}: not ours to read and write; see owner and mode of {}", name, path);
    case EMFILE:
    case ENFILE:
    case ENOSPC:
      return fail(ErrorCode::kResourceExhausted,
                  "segment {}: {}; raise the open-file limit (ulimit -n) or the inodes there", name,
                  std::strerror(error));
    default:
      return fail(ErrorCode::kInternal, "segment {}: opening it: {}", name, std::strerror(error));
  }
}

tl::unexpected<Error> nothing_asked(const std::string& name) {
  return fail(ErrorCode::kInvalidArgument, "segment {}: 0 bytes asked; ask for at least 1", name);
}

/// Of a client's segment, after a look whether the range lies in it.
Result<struct stat> file_of(const Descriptor& fd, const std::string& name, std::uint64_t offset,
                            std::uint64_t size) {
  struct stat file {};
  if (fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode))
    return fail(ErrorCode::kInvalidArgument, "segment {} is no plain shared memory", name);
  const auto has = static_cast<std::uint64_t>(file.st_size);
  if (offset > has || size > has - offset)
    return fail(ErrorCode::kOutOfRange,
                "segment {} has {} bytes; {} at offset {} asked; make it larger (ftruncate) or "
                "ask for less",
                name, has, size, offset);
  return file;
}

// -- plain segments ------------------------------------------------------------------------------

Result<std::shared_ptr<RegionMemory>> allocate_in_shm(const std::string& segment,
                                                      std::uint64_t size, int numa_node,
                                                      bool advise_huge) {
  const Descriptor fd(shm_open(segment.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600));
  if (!fd.is_open()) return cannot_open(segment);
  OwnedName owned(segment);
  if (auto fits = check_space(fd, segment, size); !fits) return tl::unexpected(fits.error());
  if (size > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()) ||
      ftruncate(fd.get(), static_cast<off_t>(size)) != 0)
    return fail(ErrorCode::kResourceExhausted,
                "segment {}: no file can have {} bytes here; see ulimit -f", segment, size);
  auto mapping = map(fd, segment, 0, size, page_size());
  if (!mapping) return tl::unexpected(mapping.error());
  if (auto bound = bind_to_numa_node(mapping->bytes(), numa_node); !bound)
    return tl::unexpected(bound.error());
  // Only advice: the kernel follows it where /dev/shm is mounted with huge=advise (huge_pages.hpp).
  if (advise_huge) madvise(mapping->bytes().data(), mapping->bytes().size(), MADV_HUGEPAGE);
  if (auto touched = touch_all(fd, segment, mapping->bytes()); !touched)
    return tl::unexpected(touched.error());
  return std::make_shared<SharedMemory>(segment, std::move(*mapping), std::move(owned));
}

Result<std::shared_ptr<RegionMemory>> map_in_shm(const std::string& segment, std::uint64_t offset,
                                                 std::uint64_t size) {
  const Descriptor fd(shm_open(segment.c_str(), O_RDWR, 0));
  if (!fd.is_open()) return cannot_open(segment);
  const auto file = file_of(fd, segment, offset, size);
  if (!file) return tl::unexpected(file.error());
  // A write to a page that finds no memory left is a SIGBUS, not an error: the part of a sparse
  // segment that has no memory yet must still fit.
  constexpr std::uint64_t kBlockBytes = 512;
  const auto has = static_cast<std::uint64_t>(file->st_size);
  const std::uint64_t allocated = static_cast<std::uint64_t>(file->st_blocks) * kBlockBytes;
  if (allocated < has)
    if (auto fits = check_space(fd, segment, has - allocated); !fits)
      return tl::unexpected(fits.error());
  auto mapping = map(fd, segment, offset, size, page_size());
  if (!mapping) return tl::unexpected(mapping.error());
  if (allocated >= has) enter_into_page_table(mapping->whole());
  return std::make_shared<SharedMemory>(segment, std::move(*mapping), std::nullopt);
}

// -- files on huge pages -------------------------------------------------------------------------

constexpr int kOpenHuge = O_RDWR | O_CLOEXEC | O_NOFOLLOW;

/// Mapping reserves the pages, so that one that has succeeded cannot run short of them unless they
/// have to be of one NUMA node.
Result<std::shared_ptr<RegionMemory>> allocate_on_huge_pages(const std::string& segment,
                                                             std::uint64_t size, int numa_node) {
  const auto mount = mount_with_room(huge_page_mounts(), size);
  if (!mount) return tl::unexpected(mount.error());
  const std::string path = mount->folder.string() + segment;
  const Descriptor fd(open(path.c_str(), kOpenHuge | O_CREAT | O_EXCL, 0600));
  if (!fd.is_open()) return cannot_open(path);
  OwnedName owned(path);
  if (ftruncate(fd.get(), static_cast<off_t>(rounded_up(size, *mount))) != 0)
    return fail(ErrorCode::kResourceExhausted, "{}: {} bytes on huge pages: {}", path, size,
                std::strerror(errno));
  auto mapping = map(fd, path, 0, size, mount->page_bytes);
  if (!mapping) return tl::unexpected(mapping.error());
  if (auto bound = bind_to_numa_node(mapping->whole(), numa_node); !bound)
    return tl::unexpected(bound.error());
  if (const int error = populate(fd, mapping->whole()); error != 0)
    return fail(
        ErrorCode::kResourceExhausted,
        "{}: the kernel gave out while touching {} bytes: {}; reserve huge pages on NUMA "
        "node {} (/sys/devices/system/node/node*/hugepages), see the cgroup's hugetlb limit",
        path, size, std::strerror(error), numa_node);
  return std::make_shared<SharedMemory>(path, std::move(*mapping), std::move(owned));
}

/// A client's own file: only directly in a hugetlbfs, or a client could have any file mapped.
Result<std::shared_ptr<RegionMemory>> map_on_huge_pages(const std::string& path,
                                                        std::uint64_t offset, std::uint64_t size) {
  const auto mounts = huge_page_mounts();
  const HugePageMount* mount = mount_of(mounts, path);
  if (mount == nullptr)
    return fail(ErrorCode::kInvalidArgument,
                "'{}' is neither a shared-memory name nor a file directly in a hugetlbfs mount",
                path);
  const Descriptor fd(open(path.c_str(), kOpenHuge));
  if (!fd.is_open()) return cannot_open(path);
  constexpr auto kHugetlbfs = 0x958458f6;
  struct statfs system {};
  if (fstatfs(fd.get(), &system) != 0 || system.f_type != kHugetlbfs)
    return fail(ErrorCode::kInvalidArgument, "{} is on no hugetlbfs", path);
  if (auto file = file_of(fd, path, offset, size); !file) return tl::unexpected(file.error());
  auto mapping = map(fd, path, offset, size, static_cast<std::uint64_t>(system.f_bsize));
  if (!mapping) return tl::unexpected(mapping.error());
  return std::make_shared<SharedMemory>(path, std::move(*mapping), std::nullopt);
}

}  // namespace

Result<std::shared_ptr<RegionMemory>> allocate_shared_memory(const std::string& name,
                                                             std::uint64_t size, int numa_node,
                                                             HugePages huge_pages) {
  const auto segment = segment_name(name);
  if (!segment) return tl::unexpected(segment.error());
  if (size == 0) return nothing_asked(*segment);
  if (huge_pages != HugePages::kNever) {
    auto memory = allocate_on_huge_pages(*segment, size, numa_node);
    if (memory || huge_pages == HugePages::kAlways) return memory;
  }
  return allocate_in_shm(*segment, size, numa_node, huge_pages != HugePages::kNever);
}

Result<std::shared_ptr<RegionMemory>> map_shared_memory(const std::string& name,
                                                        std::uint64_t offset, std::uint64_t size) {
  if (name.starts_with('/') && is_path(name)) {
    if (size == 0) return nothing_asked(name);
    return map_on_huge_pages(name, offset, size);
  }
  const auto segment = segment_name(name);
  if (!segment) return tl::unexpected(segment.error());
  if (size == 0) return nothing_asked(*segment);
  return map_in_shm(*segment, offset, size);
}

}  // namespace penstock
