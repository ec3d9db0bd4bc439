// The calls of penstock.hpp: each builds a request and reads its reply.
#include <algorithm>

#include "client/cpp/core.hpp"
#include "client/cpp/descriptors.hpp"
#include "client/cpp/penstock.hpp"

namespace penstock::client {
namespace {

/// The list under `key`, each item read by `read`.
template <class Read>
auto read_list(const Json& reply, const char* key, Read&& read) {
  std::vector<decltype(read(reply))> items;
  for (const auto& item : reply.value(key, Json::array())) items.push_back(read(item));
  return items;
}

void drop_envelope(Json& reply) {
  reply.erase("v");
  reply.erase("id");
  reply.erase("ok");
}

void check_one_target(const TransferSpec& spec) {
  if (spec.targets.size() == 1) return;
  throw Error("INVALID_ARGUMENT", "this call takes one target, not " +
                                      std::to_string(spec.targets.size()) +
                                      "; give a vector of specs to scatter");
}

std::vector<Transfer> submit_all(const std::shared_ptr<Core>& core,
                                 std::span<const TransferSpec> specs) {
  std::vector<Transfer> transfers;
  for (auto& state : core->submit(specs)) transfers.emplace_back(std::move(state), core);
  return transfers;
}

/// The region that the service has just made: its description is in the reply.
Region made_region(const std::shared_ptr<Core>& core, const Json& reply, const std::string& name,
                   MapMemory map, const std::string& operation, Json fields) {
  Region region(core, std::make_shared<RegionState>(
                          read_region(reply.contains("region") ? reply["region"] : reply),
                          operation, std::move(fields)));
  if (region.name() != name) {
    region.detach();
    throw Error("INTERNAL", "asked for region '" + name + "', got '" + region.name() + "'");
  }
  if (map == MapMemory::kYes) region.map();
  return region;
}

}  // namespace

Client::Client(Options options) : core_(Core::open(std::move(options))) {}

Client::~Client() {
  if (core_) core_->close();
}

const Options& Client::options() const { return core_->options(); }
ServiceInfo Client::service() const { return core_->service(); }
bool Client::has_ring() const { return core_->has_ring(); }

// ---- memory ----

Region Client::allocate(const std::string& name, std::uint64_t bytes, const std::string& device,
                        MapMemory map, const std::vector<std::string>& allow) {
  Json fields{{"name", name}, {"bytes", bytes}, {"device", device}};
  if (!allow.empty()) fields["allow"] = allow;
  auto reply = core_->call("allocate", fields, core_->options().memory_timeout_ms);
  return made_region(core_, reply, name, map, "allocate", fields);
}

Region Client::register_region(const std::string& name, const std::string& shared_name,
                               std::uint64_t offset, std::uint64_t bytes, const std::string& device,
                               MapMemory map, const std::vector<std::string>& allow) {
  Json fields{{"name", name},
              {"shared_name", shared_name},
              {"offset", offset},
              {"bytes", bytes},
              {"device", device}};
  if (!allow.empty()) fields["allow"] = allow;
  auto reply = core_->call("register", fields, core_->options().memory_timeout_ms);
  return made_region(core_, reply, name, map, "register", fields);
}

Region Client::allocate_cuda(const std::string& name, std::uint64_t bytes, int gpu,
                             const std::string& device) {
  Json fields{{"name", name}, {"bytes", bytes}, {"device", device}, {"memory", "cuda"}};
  if (gpu >= 0) fields["gpu"] = gpu;
  auto reply = core_->call("allocate", fields, core_->options().memory_timeout_ms);
  return made_region(core_, reply, name, MapMemory::kNo, "allocate", fields);
}

Region Client::register_cuda(const std::string& name, std::span<const std::byte> ipc_handle,
                             std::uint64_t offset, std::uint64_t bytes, int gpu,
                             const std::string& device) {
  Json fields{{"name", name},     {"offset", offset}, {"bytes", bytes},
              {"device", device}, {"memory", "cuda"}, {"ipc_handle", packed(ipc_handle)}};
  if (gpu >= 0) fields["gpu"] = gpu;
  auto reply = core_->call("register", fields, core_->options().memory_timeout_ms);
  return made_region(core_, reply, name, MapMemory::kNo, "register", fields);
}

Region Client::register_cuda_descriptor(const std::string& name, int fd,
                                        std::uint64_t allocation_bytes, std::uint64_t offset,
                                        std::uint64_t bytes, int gpu, const std::string& device) {
  Json fields{{"name", name},
              {"offset", offset},
              {"bytes", bytes},
              {"device", device},
              {"memory", "cuda"},
              {"descriptor", give_descriptor(core_->service().descriptor_socket, fd)},
              {"allocation_bytes", allocation_bytes}};
  if (gpu >= 0) fields["gpu"] = gpu;
  auto reply = core_->call("register", fields, core_->options().memory_timeout_ms);
  return made_region(core_, reply, name, MapMemory::kNo, "register", fields);
}

Region Client::allocate_cuda_descriptor(const std::string& name, std::uint64_t bytes,
                                        Descriptor& descriptor, int gpu,
                                        const std::string& device) {
  Json fields{{"name", name},
              {"bytes", bytes},
              {"device", device},
              {"memory", "cuda"},
              {"export", "descriptor"}};
  if (gpu >= 0) fields["gpu"] = gpu;
  auto reply = core_->call("allocate", fields, core_->options().memory_timeout_ms);
  Region region = made_region(core_, reply, name, MapMemory::kNo, "allocate", fields);
  if (!reply.contains("descriptor"))
    throw Error("UNSUPPORTED", reply.value("descriptor_error", "the service gave no descriptor"));
  descriptor.fd =
      take_descriptor(core_->service().descriptor_socket, reply["descriptor"].get<std::uint64_t>());
  descriptor.allocation_bytes = reply.value("allocation_bytes", std::uint64_t{0});
  descriptor.offset = reply.value("descriptor_offset", std::uint64_t{0});
  return region;
}

Region Client::open(const std::string& name, MapMemory map) {
  auto all = regions();
  auto found = std::ranges::find(all, name, &RegionInfo::name);
  if (found == all.end()) {
    throw Error("NOT_FOUND", "no region '" + name + "' at " + core_->options().endpoint);
  }
  Region region(nullptr, std::make_shared<RegionState>(*found, "", Json::object()));
  if (map == MapMemory::kYes) region.map();
  return region;
}

void Client::release(const std::string& name, bool force) {
  core_->call("release", {{"name", name}, {"force", force}}, core_->options().memory_timeout_ms);
}

std::vector<RegionInfo> Client::regions() {
  return read_list(core_->call("regions", Json::object()), "regions", read_region);
}

void Client::fill(const std::string& region, std::uint64_t seed, std::uint64_t offset,
                  std::uint64_t bytes) {
  core_->call("fill", {{"region", region}, {"seed", seed}, {"offset", offset}, {"bytes", bytes}},
              core_->options().memory_timeout_ms);
}

std::vector<std::uint64_t> Client::digest(const std::string& region, std::uint64_t page_bytes,
                                          std::uint64_t offset, std::uint64_t bytes) {
  auto reply = core_->call(
      "digest",
      {{"region", region}, {"page_bytes", page_bytes}, {"offset", offset}, {"bytes", bytes}},
      core_->options().memory_timeout_ms);
  return unpacked_u64(reply.value("digests", Json::array()));
}

std::vector<std::uint64_t> Client::digest(const std::string& region, std::uint64_t page_bytes,
                                          std::span<const std::uint32_t> pages,
                                          std::uint64_t offset) {
  if (pages.empty()) return {};  // on the wire, no pages means every page
  auto reply = core_->call("digest",
                           {{"region", region},
                            {"page_bytes", page_bytes},
                            {"offset", offset},
                            {"pages", packed(pages)}},
                           core_->options().memory_timeout_ms);
  return unpacked_u64(reply.value("digests", Json::array()));
}

// ---- transfers ----

std::vector<Transfer> Client::submit(const std::vector<TransferSpec>& specs) {
  return submit_all(core_, specs);
}

Transfer Client::submit(const TransferSpec& spec) {
  check_one_target(spec);
  return std::move(submit_all(core_, {&spec, 1}).front());
}

std::vector<Transfer> Client::transfer(const std::vector<TransferSpec>& specs) {
  core_->refuse_on_own_thread("transfer");
  auto transfers = submit(specs);
  if (!transfers.empty()) transfers.front().id();  // all are accepted, or none
  return transfers;
}

Transfer Client::transfer(const TransferSpec& spec) {
  check_one_target(spec);
  core_->refuse_on_own_thread("transfer");
  Transfer transfer = submit(spec);
  transfer.id();
  return transfer;
}

void Client::cancel(const std::vector<std::uint64_t>& ids) {
  core_->call("cancel", {{"ids", packed(std::span<const std::uint64_t>(ids))}});
}

std::vector<TransferInfo> Client::transfers(const std::vector<std::uint64_t>& ids,
                                            std::uint32_t limit) {
  Json fields{{"limit", limit}};
  if (!ids.empty()) fields["ids"] = packed(std::span<const std::uint64_t>(ids));
  auto reply = core_->call("transfers", std::move(fields));
  return read_list(reply, "transfers", [](const Json& item) {
    TransferInfo info;
    if (is_terminal(item)) info.result = read_transfer_result(item);
    info.id = item.value("id", std::uint64_t{0});
    info.state = item.value("state", "");
    info.json = to_text(item);
    return info;
  });
}

TransferTrace Client::trace(std::uint64_t id) {
  return read_trace(core_->call("trace", {{"transfer", id}}));
}

// ---- events ----

Subscription Client::subscribe(const std::vector<std::string>& topics, EventCallback callback,
                               std::optional<std::uint64_t> since) {
  return Subscription(core_->subscribe(topics, std::move(callback), since));
}

// ---- the rest ----

std::vector<NodeInfo> Client::nodes() {
  return read_list(core_->call("nodes", Json::object()), "nodes", read_node);
}

std::string Client::status() { return call("status", "{}"); }

std::string Client::call(const std::string& operation, const std::string& fields,
                         std::uint32_t timeout_ms) {
  auto parsed = Json::parse(fields, nullptr, false);
  if (!parsed.is_object()) throw Error("INVALID_ARGUMENT", "fields must be a JSON object");
  auto reply = core_->call(operation, std::move(parsed), timeout_ms);
  drop_envelope(reply);
  return to_text(std::move(reply));
}

}  // namespace penstock::client
