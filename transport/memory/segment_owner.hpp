// Whose shared-memory segments are whose. A killed process leaves its segments in /dev/shm and its
// files on huge pages, where they keep their memory for ever; the next one that starts removes
// them.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "transport/error.hpp"

namespace penstock {

/// The part of a SegmentOwner in one folder: a locked file there. A lock says something about its
/// own folder only: two containers may share a hugetlbfs and not /dev/shm.
class FolderLock {
 public:
  FolderLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  FolderLock(FolderLock&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  /// Removes what is called as the lock is, and the lock.
  ~FolderLock();

 private:
  std::string path_;
  int fd_;
};

/// Holds locks, in /dev/shm and each hugetlbfs mount, for as long as it lives; the kernel drops
/// them when the process dies, however it does and in whatever PID namespace it was. Segments whose
/// lock nobody holds are left over.
class SegmentOwner {
 public:
  /// First removes every segment of Penstock that a dead process left and that we may remove.
  /// `name` is "penstock.NODE.INCARNATION", the latter in 16 hexadecimal digits: unique to this
  /// run. Its segments are to be called "NAME.anything"; those still there go when this goes.
  /// Fails when /dev/shm cannot be written; other folders that cannot be are left out.
  static Result<SegmentOwner> claim(const std::string& name);

  /// The same for these folders, the first of which must be writable: for tests.
  static Result<SegmentOwner> claim(const std::string& name,
                                    const std::vector<std::filesystem::path>& folders);

 private:
  std::vector<FolderLock> locks_;
};

}  // namespace penstock
