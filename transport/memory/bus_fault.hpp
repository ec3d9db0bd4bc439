// Memory that its owner may take away. A client can shorten its segment while we have it mapped,
// and /dev/shm can run full under a sparse one; touching such a page is SIGBUS, wherever it
// happens: in our copies, or in libfabric's. That must cost the region, not the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

/// While it lives, a SIGBUS in `mapping` puts empty private memory in place of that page and all
/// after it, and the access goes on. Faults elsewhere go to whoever handled them before.
class BusFaultGuard {
 public:
  struct Watched;

  /// `mapping` is whole pages of `page_bytes` (0: the system's), a power of two. When 65536 are
  /// guarded already, this one is not.
  explicit BusFaultGuard(std::span<std::byte> mapping, std::uint64_t page_bytes = 0);
  BusFaultGuard(const BusFaultGuard&) = delete;
  BusFaultGuard& operator=(const BusFaultGuard&) = delete;
  ~BusFaultGuard();

  /// Whether pages were replaced: what is read and written there reaches nobody else any more.
  bool lost() const;

 private:
  Watched* watched_ = nullptr;
};

}  // namespace penstock
