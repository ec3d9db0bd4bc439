// A file in memory, for what is read by its path.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace penstock::test {

class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("fuzz", 0)) {
    if (file_ < 0) std::abort();
  }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }
  void hold(const std::uint8_t* data, std::size_t size) {
    if (ftruncate(file_, 0) != 0 || pwrite(file_, data, size, 0) != static_cast<ssize_t>(size))
      std::abort();
  }

 private:
  int file_;
};

}  // namespace penstock::test
