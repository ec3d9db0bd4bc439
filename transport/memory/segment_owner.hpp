// Whose shared-memory segments are whose. A killed process leaves its segments in /dev/shm, where
// they keep their memory for ever; the next one that starts removes them.
#pragma once

#include <string>
#include <utility>

#include "transport/error.hpp"

namespace penstock {

/// Holds a lock, in /dev/shm too, for as long as it lives; the kernel drops it when the process
/// dies, however it does and in whatever PID namespace it was. Segments whose lock nobody holds are
/// left over.
class SegmentOwner {
 public:
  /// First removes every segment of Penstock that a dead process left and that we may remove.
  /// `name` is "penstock.NODE.INCARNATION", the latter in 16 hexadecimal digits: unique to this
  /// run. Its segments are to be called "NAME.anything"; those still there go when this goes.
  static Result<SegmentOwner> claim(const std::string& name);

  SegmentOwner() = default;
  SegmentOwner(SegmentOwner&& other) noexcept
      : lock_path_(std::exchange(other.lock_path_, {})), fd_(std::exchange(other.fd_, -1)) {}
  SegmentOwner& operator=(SegmentOwner&& other) noexcept {
    std::swap(lock_path_, other.lock_path_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~SegmentOwner();

 private:
  std::string lock_path_;
  int fd_ = -1;
};

}  // namespace penstock
