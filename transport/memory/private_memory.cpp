#include "transport/memory/private_memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "transport/memory/numa_bind.hpp"

namespace penstock {
namespace {

class PrivateMemory final : public RegionMemory {
 public:
  explicit PrivateMemory(std::span<std::byte> bytes) : bytes_(bytes) {}
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;
  ~PrivateMemory() override { munmap(bytes_.data(), bytes_.size()); }
  MemoryKind kind() const override { return MemoryKind::kHost; }
  std::span<std::byte> bytes() const override { return bytes_; }
  const std::string& shared_name() const override { return no_name_; }

 private:
  std::span<std::byte> bytes_;
  std::string no_name_;
};

}  // namespace

Result<std::shared_ptr<RegionMemory>> allocate_private_memory(std::uint64_t size, int numa_node) {
  if (size == 0) return fail(ErrorCode::kInvalidArgument, "0 bytes of memory asked");
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    return fail(ErrorCode::kResourceExhausted, "mapping {} bytes: {}; see ulimit -v", size,
                std::strerror(errno));
  auto memory = std::make_shared<PrivateMemory>(std::span(static_cast<std::byte*>(address), size));
  if (auto bound = bind_to_numa_node(memory->bytes(), numa_node); !bound)
    return tl::unexpected(bound.error());
  madvise(address, size, MADV_HUGEPAGE);  // only advice: the kernel may have none
  std::memset(address, 0, size);
  return memory;
}

}  // namespace penstock
