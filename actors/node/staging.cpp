#include "actors/node/staging.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "actors/device/warm_up.hpp"
#include "actors/node/registration.hpp"
#include "transport/memory/private_memory.hpp"
#include "transport/packing/page_copy.hpp"

namespace penstock {

namespace {

Result<std::shared_ptr<Region>> registered_memory(const LocalDevice& device, std::string name,
                                                  std::uint64_t bytes) {
  auto memory = allocate_private_memory(bytes, device.numa_node);
  if (!memory) return tl::unexpected(memory.error());
  auto region = std::make_shared<Region>();
  region->name = std::move(name);
  region->device = device.name;
  region->device_index = device.index;
  region->internal = true;
  region->memory = std::move(*memory);
  region->bytes = bytes;
  if (auto registered = register_everywhere(device, *region); !registered)
    return tl::unexpected(registered.error());
  return region;
}

}  // namespace

Result<void> open_staging(LocalDevice& device, std::uint64_t bytes) {
  const std::uint64_t slots = bytes / kStagingSlotBytes;
  const std::uint64_t send = slots / 5;
  if (send == 0) return {};
  auto region = registered_memory(device, ".staging", slots * kStagingSlotBytes);
  if (!region)
    return fail(region.error().code, "staging memory of {}: {}; see fabric.staging_bytes",
                device.name, region.error().message);
  device.poller->push(UseStaging{(*region)->local(), kStagingSlotBytes, send});
  device.staging = std::make_shared<StagingPool>(std::move(*region), kStagingSlotBytes,
                                                 send * kStagingSlotBytes, slots - send);
  return {};
}

Result<void> open_scratch(const LocalDevice& device, RegionTable& regions) {
  auto region = registered_memory(device, scratch_of(device.name), kScratchBytes);
  if (!region)
    return fail(region.error().code, "scratch memory of {}: {}", device.name,
                region.error().message);
  regions.publish(std::move(*region));
  return {};
}

double measure_copies(const LocalDevice& device) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kBatch = kStagingSlotBytes / kPage;
  constexpr int kRounds = 3;
  const auto memory = device.staging->region()->memory->bytes();
  // Into the first slot from pages of the others, in a shuffled order.
  std::vector<MovedPage> pages((memory.size() - kStagingSlotBytes) / kPage);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::size_t from = (i * 2654435761u) % pages.size();  // Knuth's multiplicative hash
    pages[i] = {kStagingSlotBytes + from * kPage, i % kBatch * kPage, kPage};
  }
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    gather_pages(pages, memory.data(), memory.data());
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / static_cast<double>(pages.size() * kPage));
  }
  return best;
}

}  // namespace penstock
