// The GPU floor of a build without CUDA: every function says so.
#include <cstdlib>

#include "transport/gpu/event.hpp"
#include "transport/gpu/gpu_memory.hpp"
#include "transport/gpu/gpu_pattern.hpp"
#include "transport/gpu/inventory.hpp"
#include "transport/gpu/page_mover.hpp"
#include "transport/gpu/pinned.hpp"
#include "transport/gpu/scope.hpp"

namespace penstock {
namespace {

tl::unexpected<Error> absent() { return fail(ErrorCode::kUnsupported, "built without CUDA"); }

}  // namespace

const GpuInventory& gpu_inventory() {
  static const GpuInventory inventory = [] {
    GpuInventory none;
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) none.visible_devices = visible;
    none.why_none = "built without CUDA";
    return none;
  }();
  return inventory;
}

GpuScope::GpuScope(int) : entered_(absent()) {}
GpuScope::~GpuScope() = default;
Result<void> enter_gpu(int) { return absent(); }
Result<void> synchronise_gpu(int) { return absent(); }

Result<std::shared_ptr<GpuMemory>> allocate_gpu_memory(int, std::uint64_t) { return absent(); }
Result<std::shared_ptr<GpuMemory>> allocate_virtual_gpu_memory(int, std::uint64_t) {
  return absent();
}
Result<std::shared_ptr<GpuMemory>> import_gpu_memory(int, const GpuIpcHandle&, std::uint64_t) {
  return absent();
}
Result<std::shared_ptr<GpuMemory>> import_gpu_descriptor(int, int, std::uint64_t, std::uint64_t,
                                                         std::uint64_t) {
  return absent();
}
Result<GpuAddress> describe_gpu_address(std::uint64_t, std::uint64_t) { return absent(); }
Result<std::shared_ptr<GpuMemory>> borrow_gpu_memory(std::uint64_t, std::uint64_t, int) {
  return absent();
}
Result<void> read_gpu_memory(int, std::span<std::byte>, std::uint64_t) { return absent(); }
Result<void> write_gpu_memory(int, std::uint64_t, std::span<const std::byte>) { return absent(); }

Result<std::shared_ptr<PinnedMemory>> pin_memory(std::shared_ptr<RegionMemory>, int) {
  return absent();
}
Result<std::shared_ptr<PinnedMemory>> allocate_pinned_memory(std::uint64_t, int, int) {
  return absent();
}

Result<std::shared_ptr<GpuEvent>> make_gpu_event(int) { return absent(); }
Result<std::shared_ptr<GpuEvent>> import_gpu_event(int, const GpuEventHandle&) { return absent(); }

Result<std::unique_ptr<PageMover>> PageMover::make(int, const PageMoverOptions&) {
  return absent();
}
Result<CopyPlace> place_on(const RegionMemory&, int) { return absent(); }
bool gpu_reaches(int, int) { return false; }
Result<void> make_visible(int) { return absent(); }

Result<void> fill_gpu_pattern(const RegionMemory&, std::uint64_t, std::uint64_t, std::uint64_t) {
  return absent();
}
Result<void> digest_gpu_pages(const RegionMemory&, std::uint64_t, std::span<const std::uint64_t>,
                              std::span<std::uint64_t>) {
  return absent();
}

}  // namespace penstock
