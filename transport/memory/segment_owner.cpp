#include "transport/memory/segment_owner.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "transport/memory/huge_pages.hpp"

namespace penstock {
namespace {

constexpr std::string_view kOurs = "penstock.";
constexpr std::string_view kLock = ".lock";

constexpr int kOpen = O_RDWR | O_CLOEXEC | O_NOFOLLOW;

/// A new file, locked; -1 and errno when it cannot be.
int create_locked(const std::string& path) {
  while (true) {
    const int fd = ::open(path.c_str(), kOpen | O_CREAT | O_EXCL, 0600);
    if (fd < 0) return -1;
    // A process that starts in this moment may hold it for one of the dead: until it has swept.
    struct stat file {};
    if (::flock(fd, LOCK_EX) == 0 && ::fstat(fd, &file) == 0 && file.st_nlink > 0) return fd;
    ::close(fd);
  }
}

std::vector<std::string> names_starting_with(const std::filesystem::path& folder,
                                             std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    if (auto name = at->path().filename().string(); name.starts_with(prefix))
      names.push_back(std::move(name));
  return names;
}

/// All that belongs to a lock, the lock itself last: a removal that fails half-way can be repeated.
void remove_with_segments(const std::filesystem::path& lock) {
  const auto folder = lock.parent_path();
  std::string owner = lock.filename().string();
  owner.resize(owner.size() - kLock.size() + 1);  // with the dot
  for (const std::string& name : names_starting_with(folder, owner))
    if (name != lock.filename()) ::unlink((folder / name).c_str());
  ::unlink(lock.c_str());
}

/// penstock.NODE.INCARNATION.lock: a shorter name would stand for more than one run's segments.
bool is_lock(std::string_view name) {
  constexpr std::size_t kIncarnation = 16;  // digits
  if (!name.starts_with(kOurs) || !name.ends_with(kLock)) return false;
  name.remove_suffix(kLock.size());
  const auto digits = name.substr(name.rfind('.') + 1);
  return name.size() > kOurs.size() + kIncarnation && digits.size() == kIncarnation &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void remove_if_dead(const std::string& lock_path) {
  const int fd = ::open(lock_path.c_str(), kOpen);
  if (fd < 0) return;
  // Else its owner lives.
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) remove_with_segments(lock_path);
  ::close(fd);
}

}  // namespace

FolderLock::~FolderLock() {
  if (fd_ < 0) return;
  // Nothing should be left; whoever still has it mapped keeps it until then.
  remove_with_segments(path_);
  ::close(fd_);
}

Result<SegmentOwner> SegmentOwner::claim(const std::string& name) {
  std::vector<std::filesystem::path> folders{"/dev/shm"};
  for (const HugePageMount& mount : huge_page_mounts()) folders.push_back(mount.folder);
  return claim(name, folders);
}

Result<SegmentOwner> SegmentOwner::claim(const std::string& name,
                                         const std::vector<std::filesystem::path>& folders) {
  SegmentOwner owner;
  for (const auto& folder : folders) {
    for (const std::string& found : names_starting_with(folder, kOurs))
      if (is_lock(found)) remove_if_dead((folder / found).string());
    const std::string path = (folder / name).string() + std::string(kLock);
    const int fd = create_locked(path);
    if (fd >= 0)
      owner.locks_.emplace_back(path, fd);
    else if (folder == folders.front())
      return fail(ErrorCode::kResourceExhausted,
                  "{} cannot be made and locked: {}; host memory needs a {} that can be written",
                  path, std::strerror(errno), folder.string());
  }
  return owner;
}

}  // namespace penstock
