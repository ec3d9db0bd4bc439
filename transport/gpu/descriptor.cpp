#include <unistd.h>

#include "transport/gpu/gpu_memory.hpp"

namespace penstock {

GpuDescriptor& GpuDescriptor::operator=(GpuDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

GpuDescriptor::~GpuDescriptor() {
  if (fd_ >= 0) close(fd_);
}

const char* name_of(GpuMemoryOrigin origin) {
  switch (origin) {
    case GpuMemoryOrigin::kAllocated:
      return "allocated";
    case GpuMemoryOrigin::kVirtual:
      return "virtual";
    case GpuMemoryOrigin::kIpcImport:
      return "ipc import";
    case GpuMemoryOrigin::kVirtualImport:
      return "virtual import";
    case GpuMemoryOrigin::kBorrowed:
      return "borrowed";
  }
  return "unknown";
}

}  // namespace penstock
