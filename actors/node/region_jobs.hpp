// What requests do to memory: allocate, register, release, fill, digest. Each job runs on a worker
// thread, since it may touch gigabytes, and ends with one reply.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "actors/device/region_table.hpp"
#include "actors/gateway/descriptor_socket.hpp"
#include "actors/local_device.hpp"
#include "actors/protocol/request.hpp"
#include "actors/worker.hpp"

namespace penstock {

struct RegionLimits {
  std::size_t regions = 65536;
  std::uint64_t bytes = 0;  // of all regions together; 0: no limit
  // The same for one client; 0: no limit of its own.
  std::size_t client_regions = 0;
  std::uint64_t client_bytes = 0;
  HugePages huge_pages = HugePages::kAuto;
  bool gpus = true;  // whether memory of GPUs may be used (devices.gpus)
};

/// Whose a region is.
struct RegionOwner {
  std::string client;  // its connection
  std::string who;  // its name in the allow-list; "" without keys: the connection is all there is
  bool operator==(const RegionOwner& other) const {
    return who == other.who && (!who.empty() || client == other.client);
  }
};

class RegionJobs {
 public:
  using Reply = std::function<void(Result<nlohmann::json>)>;

  /// `segments` starts the names of the shared memory that it makes.
  RegionJobs(std::string node, std::string segments, std::shared_ptr<RegionTable> regions,
             std::vector<std::shared_ptr<LocalDevice>> devices, RegionLimits limits,
             std::shared_ptr<DescriptorSocket> descriptors = nullptr);

  void allocate(const AllocateRequest& request, RegionOwner owner, Reply reply);
  void register_shared(const RegisterRequest& request, RegionOwner owner, Reply reply);
  void fill(const FillRequest& request, Reply reply);
  void digest(const DigestRequest& request, Reply reply);
  /// Takes a closed region apart once nobody uses it; false: still used. `reply` is called later.
  bool dispose(const std::shared_ptr<Region>& region, Reply reply);
  /// Ends fills and digests soon, without a reply. Afterwards the devices' registrars may still
  /// hold jobs: they are stopped by whoever stops the devices.
  void stop();

 private:
  using MakeMemory = std::function<Result<std::shared_ptr<RegionMemory>>(const LocalDevice&)>;
  void make(std::shared_ptr<Region> region, MakeMemory make_memory, Reply reply);
  Reply with_descriptor(const std::string& name, Reply reply) const;
  /// Room that a region takes from when it is asked for until it is in the table.
  struct Claims;
  Result<void> has_room(const RegionOwner& owner, std::uint64_t bytes) const;
  Result<std::shared_ptr<LocalDevice>> named(const std::string& device) const;
  Result<std::shared_ptr<LocalDevice>> choose(const Region& region) const;
  /// The GPU that is meant, and the device that serves it.
  Result<std::pair<std::shared_ptr<LocalDevice>, int>> choose_gpu(
      const std::string& device, std::optional<std::uint32_t> gpu) const;
  template <class Request>
  void make_on_gpu(const Request& request, std::shared_ptr<Region> region,
                   std::function<Result<std::shared_ptr<RegionMemory>>(int gpu)> make_memory,
                   Reply reply);
  Result<std::span<std::byte>> span_of(const RegionUse& use, std::uint64_t offset,
                                       std::uint64_t bytes) const;

  std::string node_;
  std::string segments_;
  std::shared_ptr<RegionTable> regions_;
  std::vector<std::shared_ptr<LocalDevice>> devices_;
  RegionLimits limits_;
  std::shared_ptr<Claims> claims_;
  std::shared_ptr<DescriptorSocket> descriptors_;  // null: there is none
  std::uint64_t next_segment_ = 1;
  std::shared_ptr<std::atomic<bool>> stopping_ = std::make_shared<std::atomic<bool>>(false);
  Worker worker_{"ps-memory"};
};

/// {name, epoch, bytes, device, shared_name, owner, uses} as replies carry it.
nlohmann::json to_json(const Region& region);

}  // namespace penstock
