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

namespace penstock {
namespace {

constexpr std::string_view kFolder = "/dev/shm/";
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

std::vector<std::string> names_starting_with(std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(kFolder, error), end; !error && at != end;
       at.increment(error))
    if (auto name = at->path().filename().string(); name.starts_with(prefix))
      names.push_back(std::move(name));
  return names;
}

/// All that belongs to a lock, the lock itself last: a removal that fails half-way can be repeated.
void remove_with_segments(const std::string& lock_path) {
  std::string owner = lock_path.substr(kFolder.size());
  owner.resize(owner.size() - kLock.size() + 1);  // with the dot
  for (const std::string& name : names_starting_with(owner))
    if (const auto path = std::string(kFolder) + name; path != lock_path) ::unlink(path.c_str());
  ::unlink(lock_path.c_str());
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

Result<SegmentOwner> SegmentOwner::claim(const std::string& name) {
  for (const std::string& found : names_starting_with(kOurs))
    if (is_lock(found)) remove_if_dead(std::string(kFolder) + found);
  SegmentOwner owner;
  owner.lock_path_ = std::string(kFolder) + name + std::string(kLock);
  owner.fd_ = create_locked(owner.lock_path_);
  if (owner.fd_ < 0)
    return fail(ErrorCode::kResourceExhausted,
                "{} cannot be made and locked: {}; host memory needs a /dev/shm that can be "
                "written",
                owner.lock_path_, std::strerror(errno));
  return owner;
}

SegmentOwner::~SegmentOwner() {
  if (fd_ < 0) return;
  // Nothing should be left; whoever still has it mapped keeps it until then.
  remove_with_segments(lock_path_);
  ::close(fd_);
}

}  // namespace penstock
