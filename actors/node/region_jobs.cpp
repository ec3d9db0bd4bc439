#include "actors/node/region_jobs.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "actors/node/gpu_device.hpp"
#include "actors/node/registration.hpp"
#include "transport/gpu/gpu_memory.hpp"
#include "transport/gpu/gpu_pattern.hpp"
#include "transport/gpu/inventory.hpp"
#include "transport/memory/pattern.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kFillSlice = 16u << 20;
constexpr std::size_t kGpuFillSlice = std::size_t{1} << 30;

tl::unexpected<Error> no_descriptors() {
  return fail(ErrorCode::kUnsupported, "this service has no descriptor socket: see its log");
}

struct OfferedDescriptor {
  std::uint64_t token = 0;
  std::uint64_t allocation_bytes = 0;
  std::uint64_t offset = 0;
};

Result<OfferedDescriptor> offer_descriptor(const std::string& name, RegionTable& regions,
                                           DescriptorSocket* descriptors) {
  if (descriptors == nullptr) return no_descriptors();
  const auto use = regions.use(name);
  if (!use) return tl::unexpected(use.error());
  const auto* memory = dynamic_cast<const GpuMemory*>((*use)->memory.get());
  if (memory == nullptr) return fail(ErrorCode::kUnsupported, "it is no memory of a GPU");
  auto handle = memory->descriptor();
  if (!handle) return tl::unexpected(handle.error());
  const auto token = descriptors->offer(std::move(handle->fd));
  if (!token) return tl::unexpected(token.error());
  return OfferedDescriptor{*token, handle->allocation_bytes, handle->offset};
}

std::optional<Error> lost_while_used(const Region& region) {
  if (!region.memory->lost()) return std::nullopt;
  return lost_error(region);
}

/// In slices, so that a stop is seen soon.
std::optional<Error> fill_slices(const Region& region, std::span<std::byte> memory,
                                 const FillRequest& request, const std::atomic<bool>& stopping) {
  const std::size_t slice = region.on_gpu() ? kGpuFillSlice : kFillSlice;
  for (std::size_t at = 0; at < memory.size() && !stopping.load(); at += slice) {
    const std::size_t length = std::min(slice, memory.size() - at);
    if (!region.on_gpu()) {
      fill_pattern(memory.subspan(at, length), request.seed, request.offset + at);
      continue;
    }
    const auto filled = fill_gpu_pattern(*region.memory, request.offset + at, length, request.seed);
    if (!filled) return filled.error();
  }
  return std::nullopt;
}

std::optional<Error> digest_on_gpu(const Region& region, const DigestRequest& request,
                                   std::vector<std::uint64_t>& digests) {
  std::vector<std::uint64_t> offsets(digests.size());
  for (std::size_t i = 0; i < offsets.size(); ++i)
    offsets[i] =
        request.offset + (request.pages.empty() ? i : request.pages[i]) * request.page_bytes;
  const auto digested = digest_gpu_pages(*region.memory, request.page_bytes, offsets, digests);
  if (!digested) return digested.error();
  return std::nullopt;
}

nlohmann::json binary_of(const std::vector<std::uint64_t>& values) {
  std::vector<std::uint8_t> bytes(values.size() * sizeof(std::uint64_t));
  if (!values.empty()) __builtin_memcpy(bytes.data(), values.data(), bytes.size());
  return nlohmann::json::binary(std::move(bytes));
}

}  // namespace

nlohmann::json to_json(const Region& region) {
  nlohmann::json json{{"name", region.name},
                      {"epoch", region.epoch},
                      {"bytes", region.bytes},
                      {"device", region.device},
                      {"kind", region.on_gpu() ? "cuda" : "host"},
                      {"shared_name", region.memory->shared_name()},
                      {"shared_offset", region.shared_offset},
                      {"owner", region.client_owned ? "client" : "service"},
                      {"uses", region.uses.load()},
                      {"closing", region.closing.load()}};
  if (!region.on_gpu()) return json;
  json["gpu"] = region.memory->gpu();
  json["reach"] = region.needs_staging() ? "staged" : "gpudirect";
  if (const Gpu* gpu = require_gpu(region.memory->gpu()).value_or(nullptr))
    json["gpu_bus"] = gpu->bus_id;
  // For whoever wants to map it. A client's own memory cannot be passed on, and need not be.
  const auto* memory = dynamic_cast<const GpuMemory*>(region.memory.get());
  const auto handle = memory != nullptr ? memory->ipc_handle()
                                        : Result<GpuIpcHandle>(fail(ErrorCode::kUnsupported, ""));
  if (!handle) return json;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(handle->handle.data());
  json["ipc_handle"] =
      nlohmann::json::binary(std::vector<std::uint8_t>(bytes, bytes + GpuIpcHandle::kBytes));
  json["ipc_offset"] = handle->offset;
  return json;
}

RegionJobs::RegionJobs(std::string node, std::string segments, std::shared_ptr<RegionTable> regions,
                       std::vector<std::shared_ptr<LocalDevice>> devices, RegionLimits limits,
                       std::shared_ptr<DescriptorSocket> descriptors)
    : node_(std::move(node)),
      segments_(std::move(segments)),
      regions_(std::move(regions)),
      devices_(std::move(devices)),
      limits_(limits),
      claims_(std::make_shared<Claims>()),
      descriptors_(std::move(descriptors)) {}

struct RegionJobs::Claims {
  struct Claim {
    RegionOwner owner;
    std::uint64_t bytes = 0;
  };
  std::mutex mutex;
  std::list<Claim> all;

  /// Ends with what is returned. `claims` is what it is called on, so that it outlives the claim.
  static std::shared_ptr<void> add(const std::shared_ptr<Claims>& claims, RegionOwner owner,
                                   std::uint64_t bytes) {
    const std::lock_guard lock(claims->mutex);
    const auto place = claims->all.insert(claims->all.end(), {std::move(owner), bytes});
    return {claims.get(), [claims, place](Claims*) {
              const std::lock_guard lock(claims->mutex);
              claims->all.erase(place);
            }};
  }
};

Result<void> RegionJobs::has_room(const RegionOwner& owner, std::uint64_t bytes) const {
  std::uint64_t used = 0, owners = 0;
  std::size_t count = 0;
  const auto add = [&](const RegionOwner& whose, std::uint64_t size) {
    used += size;
    if (!(whose == owner)) return;
    owners += size;
    ++count;
  };
  if (limits_.bytes == 0 && limits_.client_bytes == 0 && limits_.client_regions == 0) return {};
  for (const auto& region : regions_->list()) add({region->client, region->who}, region->bytes);
  {
    const std::lock_guard lock(claims_->mutex);
    for (const auto& claim : claims_->all) add(claim.owner, claim.bytes);
  }
  const auto fits = [&](std::uint64_t most, std::uint64_t taken) {
    return most == 0 || (bytes <= most && taken <= most - bytes);
  };
  if (!fits(limits_.bytes, used))
    return fail(ErrorCode::kResourceExhausted,
                "{} bytes asked for, {} of {} are taken (limits.region_bytes)", bytes, used,
                limits_.bytes);
  if (!fits(limits_.client_bytes, owners))
    return fail(ErrorCode::kResourceExhausted,
                "{} bytes asked for, this client has {} of {} (limits.client_region_bytes)", bytes,
                owners, limits_.client_bytes);
  if (limits_.client_regions != 0 && count >= limits_.client_regions)
    return fail(ErrorCode::kResourceExhausted, "this client has {} regions: limits.client_regions",
                count);
  return {};
}

Result<std::shared_ptr<LocalDevice>> RegionJobs::named(const std::string& name) const {
  std::string there;
  for (const auto& device : devices_) {
    if (device->name == name) return device;
    there += (there.empty() ? "" : ", ") + device->name;
  }
  return fail(ErrorCode::kNotFound, "no device '{}' on node '{}': there are {}", name, node_,
              there);
}

Result<std::shared_ptr<LocalDevice>> RegionJobs::choose(const Region& wanted) const {
  if (!wanted.device.empty()) return named(wanted.device);
  // The device with the fewest bytes so far, so that regions spread over NUMA nodes.
  std::vector<std::uint64_t> used(devices_.size(), 0);
  for (const auto& region : regions_->list()) used[region->device_index] += region->bytes;
  return devices_[static_cast<std::size_t>(std::min_element(used.begin(), used.end()) -
                                           used.begin())];
}

Result<std::pair<std::shared_ptr<LocalDevice>, int>> RegionJobs::choose_gpu(
    const std::string& name, std::optional<std::uint32_t> gpu) const {
  if (!limits_.gpus)
    return fail(ErrorCode::kUnsupported, "this service uses no GPU: devices.gpus is none");
  std::shared_ptr<LocalDevice> device;
  if (!name.empty()) {
    auto found = named(name);
    if (!found) return tl::unexpected(found.error());
    device = std::move(*found);
  }
  // Without a word the GPU with the fewest bytes of regions; on a machine without one, the first,
  // for the error that says why there is none.
  int wanted = gpu ? static_cast<int>(*gpu) : device ? device->gpu : -1;
  if (wanted < 0 && device && device->gpu < 0)
    return fail(ErrorCode::kInvalidArgument,
                "device '{}' stands for no GPU: say which, or name another device", name);
  if (wanted < 0) {
    std::map<int, std::uint64_t> used;
    for (const auto& each : devices_)
      if (each->gpu >= 0) used[each->gpu] = 0;
    for (const auto& region : regions_->list())
      if (region->on_gpu()) used[region->memory->gpu()] += region->bytes;
    const auto least = std::min_element(
        used.begin(), used.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    wanted = least == used.end() ? 0 : least->first;
  }
  if (auto known = require_gpu(wanted); !known) return tl::unexpected(known.error());
  for (const auto& each : devices_)
    if (!device && each->gpu == wanted) device = each;
  return std::pair(device ? device : devices_.front(), wanted);
}

void RegionJobs::make(std::shared_ptr<Region> region, MakeMemory make_memory, Reply reply) {
  if (auto reserved = regions_->reserve(region->name, limits_.regions); !reserved)
    return reply(tl::unexpected(reserved.error()));
  const RegionOwner owner{region->client, region->who};
  auto room = has_room(owner, region->bytes);
  auto device =
      room ? choose(*region) : Result<std::shared_ptr<LocalDevice>>(tl::unexpected(room.error()));
  if (!device) {
    regions_->abandon(region->name);
    return reply(tl::unexpected(device.error()));
  }
  auto claim = Claims::add(claims_, owner, region->bytes);
  region->device = (*device)->name;
  region->device_index = (*device)->index;
  (*device)->registrar->post([regions = regions_, device = *device, region = std::move(region),
                              make_memory = std::move(make_memory), reply = std::move(reply),
                              claim = std::move(claim)]() mutable {
    auto memory = make_memory(*device);
    if (memory) region->memory = std::move(*memory);
    auto registered = memory ? register_everywhere(*device, *region)
                             : Result<void>(tl::unexpected(memory.error()));
    if (!registered) {
      regions->abandon(region->name);
      claim.reset();
      return reply(tl::unexpected(registered.error()));
    }
    const auto published = regions->publish(region);
    claim.reset();  // before the client hears of it
    reply(to_json(*published));
  });
}

/// Adds to a reply how the region of that name is mapped by a descriptor.
RegionJobs::Reply RegionJobs::with_descriptor(const std::string& name, Reply reply) const {
  return [name, regions = regions_, descriptors = descriptors_,
          reply = std::move(reply)](Result<nlohmann::json> result) {
    if (!result) return reply(std::move(result));
    const auto offered = offer_descriptor(name, *regions, descriptors.get());
    if (!offered) {
      (*result)["descriptor_error"] = offered.error().message;
    } else {
      (*result)["descriptor"] = offered->token;
      (*result)["allocation_bytes"] = offered->allocation_bytes;
      (*result)["descriptor_offset"] = offered->offset;
    }
    reply(std::move(result));
  };
}

/// The rest of an allocate or register of memory on a GPU.
template <class Request>
void RegionJobs::make_on_gpu(
    const Request& request, std::shared_ptr<Region> region,
    std::function<Result<std::shared_ptr<RegionMemory>>(int gpu)> make_memory, Reply reply) {
  auto chosen = choose_gpu(request.device, request.gpu);
  if (!chosen) return reply(tl::unexpected(chosen.error()));
  region->device = chosen->first->name;
  make(
      std::move(region),
      [device = chosen->first, gpu = chosen->second,
       make_memory = std::move(make_memory)](const LocalDevice&) {
        auto memory = make_memory(gpu);
        if (!memory) return memory;
        if (auto movable = make_movable(*device, gpu); !movable)
          return Result<std::shared_ptr<RegionMemory>>(tl::unexpected(movable.error()));
        return memory;
      },
      std::move(reply));
}

void RegionJobs::allocate(const AllocateRequest& request, RegionOwner owner, Reply reply) {
  auto region = std::make_shared<Region>();
  region->name = request.name;
  region->bytes = request.bytes;
  region->device = request.device;
  region->client = std::move(owner.client);
  region->who = std::move(owner.who);
  region->allow = request.allow;
  if (request.memory == MemoryKind::kCuda)
    return make_on_gpu(
        request, std::move(region),
        [bytes = request.bytes,
         as_descriptor = request.as_descriptor](int gpu) -> Result<std::shared_ptr<RegionMemory>> {
          if (as_descriptor) return allocate_virtual_gpu_memory(gpu, bytes);
          return allocate_gpu_memory(gpu, bytes);
        },
        request.as_descriptor ? with_descriptor(request.name, std::move(reply)) : std::move(reply));
  const std::string segment = fmt::format("{}.{}", segments_, next_segment_++);
  make(
      std::move(region),
      [segment, bytes = request.bytes, pages = limits_.huge_pages](const LocalDevice& device) {
        return allocate_shared_memory(segment, bytes, device.numa_node, pages);
      },
      std::move(reply));
}

void RegionJobs::register_shared(const RegisterRequest& request, RegionOwner owner, Reply reply) {
  auto region = std::make_shared<Region>();
  region->name = request.name;
  region->bytes = request.bytes;
  region->device = request.device;
  region->client_owned = true;
  region->shared_offset = request.offset;
  region->client = std::move(owner.client);
  region->who = std::move(owner.who);
  region->allow = request.allow;
  if (request.memory == MemoryKind::kCuda)
    return make_on_gpu(
        request, std::move(region),
        [request, descriptors = descriptors_](int gpu) -> Result<std::shared_ptr<RegionMemory>> {
          if (request.descriptor != 0) {
            if (!descriptors) return no_descriptors();
            auto descriptor = descriptors->claim(request.descriptor);
            if (!descriptor) return tl::unexpected(descriptor.error());
            return import_gpu_descriptor(gpu, descriptor->get(), request.allocation_bytes,
                                         request.offset, request.bytes);
          }
          GpuIpcHandle handle;
          std::memcpy(handle.handle.data(), request.ipc_handle.data(), handle.handle.size());
          handle.offset = request.offset;
          return import_gpu_memory(gpu, handle, request.bytes);
        },
        std::move(reply));
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
    region->pinned.reset();
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
    auto lost = fill_slices(**kept, memory, request, *stopping);
    if (!lost) lost = lost_while_used(**kept);
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
    std::optional<Error> lost;
    if ((*kept)->on_gpu())
      lost = digest_on_gpu(**kept, request, digests);
    else
      for (std::size_t i = 0; i < digests.size() && !stopping->load(); ++i)
        digests[i] = digest_page(memory.subspan((listed ? request.pages[i] : i) * page, page));
    if (!lost) lost = lost_while_used(**kept);
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
