#include "actors/node/region_jobs.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "actors/node/registration.hpp"
#include "transport/memory/pattern.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kFillSlice = 16u << 20;

std::optional<Error> lost_while_used(const Region& region) {
  if (!region.memory->lost()) return std::nullopt;
  return lost_error(region);
}

nlohmann::json binary_of(const std::vector<std::uint64_t>& values) {
  std::vector<std::uint8_t> bytes(values.size() * sizeof(std::uint64_t));
  if (!values.empty()) __builtin_memcpy(bytes.data(), values.data(), bytes.size());
  return nlohmann::json::binary(std::move(bytes));
}

}  // namespace

nlohmann::json to_json(const Region& region) {
  return {{"name", region.name},
          {"epoch", region.epoch},
          {"bytes", region.bytes},
          {"device", region.device},
          {"kind", "host"},
          {"shared_name", region.memory->shared_name()},
          {"shared_offset", region.shared_offset},
          {"owner", region.client_owned ? "client" : "service"},
          {"uses", region.uses.load()},
          {"closing", region.closing.load()}};
}

RegionJobs::RegionJobs(std::string node, std::string segments, std::shared_ptr<RegionTable> regions,
                       std::vector<std::shared_ptr<LocalDevice>> devices, RegionLimits limits)
    : node_(std::move(node)),
      segments_(std::move(segments)),
      regions_(std::move(regions)),
      devices_(std::move(devices)),
      limits_(limits) {}

Result<std::shared_ptr<LocalDevice>> RegionJobs::choose(const std::string& name,
                                                        std::uint64_t bytes) const {
  if (limits_.bytes != 0) {
    std::uint64_t used = 0;
    for (const auto& region : regions_->list()) used += region->bytes;
    if (bytes > limits_.bytes || used > limits_.bytes - bytes)
      return fail(ErrorCode::kResourceExhausted,
                  "{} bytes asked for, {} of {} are taken (limits.region_bytes)", bytes, used,
                  limits_.bytes);
  }
  if (name.empty()) {
    // The device with the fewest bytes so far, so that regions spread over NUMA nodes.
    std::vector<std::uint64_t> used(devices_.size(), 0);
    for (const auto& region : regions_->list()) used[region->device_index] += region->bytes;
    return devices_[static_cast<std::size_t>(std::min_element(used.begin(), used.end()) -
                                             used.begin())];
  }
  std::string there;
  for (const auto& device : devices_) {
    if (device->name == name) return device;
    there += (there.empty() ? "" : ", ") + device->name;
  }
  return fail(ErrorCode::kNotFound, "no device '{}' on node '{}': there are {}", name, node_,
              there);
}

void RegionJobs::make(std::shared_ptr<Region> region, MakeMemory make_memory, Reply reply) {
  if (auto reserved = regions_->reserve(region->name, limits_.regions); !reserved)
    return reply(tl::unexpected(reserved.error()));
  auto device = choose(region->device, region->bytes);
  if (!device) {
    regions_->abandon(region->name);
    return reply(tl::unexpected(device.error()));
  }
  region->device = (*device)->name;
  region->device_index = (*device)->index;
  (*device)->registrar->post([regions = regions_, device = *device, region = std::move(region),
                              make_memory = std::move(make_memory), reply = std::move(reply)] {
    auto memory = make_memory(*device);
    if (memory) region->memory = std::move(*memory);
    auto registered = memory ? register_everywhere(*device, *region)
                             : Result<void>(tl::unexpected(memory.error()));
    if (!registered) {
      regions->abandon(region->name);
      return reply(tl::unexpected(registered.error()));
    }
    reply(to_json(*regions->publish(region)));
  });
}

void RegionJobs::allocate(const AllocateRequest& request, std::string client, Reply reply) {
  auto region = std::make_shared<Region>();
  region->name = request.name;
  region->bytes = request.bytes;
  region->device = request.device;
  region->client = std::move(client);
  const std::string segment = fmt::format("{}.{}", segments_, next_segment_++);
  make(
      std::move(region),
      [segment, bytes = request.bytes, pages = limits_.huge_pages](const LocalDevice& device) {
        return allocate_shared_memory(segment, bytes, device.numa_node, pages);
      },
      std::move(reply));
}

void RegionJobs::register_shared(const RegisterRequest& request, std::string client, Reply reply) {
  auto region = std::make_shared<Region>();
  region->name = request.name;
  region->bytes = request.bytes;
  region->device = request.device;
  region->client_owned = true;
  region->shared_offset = request.offset;
  region->client = std::move(client);
  make(
      std::move(region),
      [request](const LocalDevice&) {
        return map_shared_memory(request.shared_name, request.offset, request.bytes);
      },
      std::move(reply));
}

bool RegionJobs::dispose(const std::shared_ptr<Region>& region, Reply reply) {
  if (!regions_->remove(region->name)) return false;
  devices_[region->device_index]->registrar->post([region, reply = std::move(reply)] {
    // The poller lets go of a transfer a moment after it ended. Closing a registration may take
    // 100s of ms and belongs here, so wait for that moment; one second is far beyond it.
    auto local = region->local();
    region->set_registered(nullptr, {});
    for (int i = 0; i < 1000 && local.use_count() > 1; ++i) std::this_thread::sleep_for(1ms);
    local.reset();
    region->memory.reset();
    reply(nlohmann::json::object());
  });
  return true;
}

Result<std::span<std::byte>> RegionJobs::span_of(const RegionUse& use, std::uint64_t offset,
                                                 std::uint64_t bytes) const {
  if (offset > use->bytes || bytes > use->bytes - offset)
    return fail(ErrorCode::kOutOfRange, "{} bytes at offset {} do not lie in region '{}' of {}",
                bytes, offset, use->name, use->bytes);
  return use->memory->bytes().subspan(offset, bytes == 0 ? use->bytes - offset : bytes);
}

void RegionJobs::fill(const FillRequest& request, Reply reply) {
  auto use = regions_->use(request.region);
  if (!use) return reply(tl::unexpected(use.error()));
  auto memory = span_of(*use, request.offset, request.bytes);
  if (!memory) return reply(tl::unexpected(memory.error()));
  auto kept = std::make_shared<RegionUse>(std::move(*use));
  worker_.post([kept, memory = *memory, request, stopping = stopping_, reply = std::move(reply)] {
    // In slices, so that a stop is seen soon.
    for (std::size_t at = 0; at < memory.size() && !stopping->load(); at += kFillSlice)
      fill_pattern(memory.subspan(at, std::min(kFillSlice, memory.size() - at)), request.seed,
                   request.offset + at);
    auto lost = lost_while_used(**kept);
    kept->reset();
    if (stopping->load()) return;
    if (lost) return reply(tl::unexpected(*lost));
    reply(nlohmann::json{{"bytes", memory.size()}});
  });
}

void RegionJobs::digest(const DigestRequest& request, Reply reply) {
  auto use = regions_->use(request.region);
  if (!use) return reply(tl::unexpected(use.error()));
  auto memory = span_of(*use, request.offset, request.bytes);
  if (!memory) return reply(tl::unexpected(memory.error()));
  const std::uint64_t page = request.page_bytes;
  if (page == 0)
    return reply(fail(ErrorCode::kInvalidArgument, "page_bytes is 0: pages need a size"));
  const std::uint64_t pages = memory->size() / page;
  if (request.pages.empty() && memory->size() % page != 0)
    return reply(fail(ErrorCode::kInvalidArgument, "{} bytes are not a multiple of page_bytes {}",
                      memory->size(), page));
  for (std::size_t i = 0; i < request.pages.size(); ++i)
    if (request.pages[i] >= pages)
      return reply(fail(ErrorCode::kOutOfRange,
                        "page {} was asked for, region '{}' has {} pages of "
                        "{} bytes there",
                        request.pages[i], request.region, pages, page));
  auto kept = std::make_shared<RegionUse>(std::move(*use));
  worker_.post([kept, memory = *memory, request, page, pages, stopping = stopping_,
                reply = std::move(reply)] {
    const bool listed = !request.pages.empty();
    std::vector<std::uint64_t> digests(listed ? request.pages.size() : pages);
    for (std::size_t i = 0; i < digests.size() && !stopping->load(); ++i)
      digests[i] = digest_page(memory.subspan((listed ? request.pages[i] : i) * page, page));
    auto lost = lost_while_used(**kept);
    kept->reset();
    if (stopping->load()) return;
    if (lost) return reply(tl::unexpected(*lost));
    reply(nlohmann::json{{"digests", binary_of(digests)}});
  });
}

void RegionJobs::stop() {
  stopping_->store(true);
  worker_.stop();
}

}  // namespace penstock
