#include "actors/node/memory_requests.hpp"

#include <utility>

namespace penstock {

MemoryRequests::MemoryRequests(std::unique_ptr<RegionJobs> jobs,
                               std::shared_ptr<RegionTable> regions, std::shared_ptr<Audit> audit,
                               Milliseconds release_patience, Port port)
    : jobs_(std::move(jobs)),
      regions_(std::move(regions)),
      audit_(std::move(audit)),
      port_(std::move(port)),
      releases_(*jobs_, release_patience, port_.evict) {}

void MemoryRequests::handle(Context context, const AllocateRequest& request) {
  jobs_->allocate(request, {context.client, context.asker.who}, std::move(context.reply));
}

void MemoryRequests::handle(Context context, const RegisterRequest& request) {
  jobs_->register_shared(request, {context.client, context.asker.who}, std::move(context.reply));
}

void MemoryRequests::handle(Context context, const FillRequest& request) {
  if (auto mine = owns(context, request.region); !mine)
    return context.reply(tl::unexpected(mine.error()));
  jobs_->fill(request, std::move(context.reply));
}

void MemoryRequests::handle(Context context, const DigestRequest& request) {
  if (auto mine = owns(context, request.region); !mine)
    return context.reply(tl::unexpected(mine.error()));
  jobs_->digest(request, std::move(context.reply));
}

void MemoryRequests::handle(Context context, const RegionsRequest&) {
  nlohmann::json regions = nlohmann::json::array();
  for (const auto& region : regions_->list()) {
    regions.push_back(to_json(*region));
    regions.back()["yours"] = region->client == context.client;
    if (context.asker.may_touch(region->who)) continue;
    regions.back().erase("ipc_handle");  // whoever has it can write the memory
    regions.back().erase("ipc_offset");
  }
  context.reply(nlohmann::json{{"regions", std::move(regions)}});
}

void MemoryRequests::handle(Context context, const ReleaseRequest& request) {
  if (auto mine = owns(context, request.name); !mine)
    return context.reply(tl::unexpected(mine.error()));
  auto region = regions_->close(request.name, request.force);
  if (!region) return context.reply(tl::unexpected(region.error()));
  release(*region, std::move(context.reply));
}

void MemoryRequests::handle(Context context, const KeepRequest& request) {
  if (auto mine = owns(context, request.name); !mine)
    return context.reply(tl::unexpected(mine.error()));
  const auto use = regions_->use(request.name);
  if (!use) return context.reply(tl::unexpected(use.error()));
  use->region()->kept = true;
  context.reply(nlohmann::json::object());
}

std::size_t MemoryRequests::client_died(const std::string& client) {
  std::size_t count = 0;
  for (const auto& region : regions_->list()) {
    if (region->client != client || region->kept) continue;
    if (const auto closed = regions_->close(region->name, true)) release(*closed, std::nullopt);
    ++count;
  }
  return count;
}

void MemoryRequests::look() {
  releases_.look(Clock::now());
  if (releases_.any()) port_.look_later();
}

void MemoryRequests::release(const std::shared_ptr<Region>& region,
                             std::optional<RegionJobs::Reply> reply) {
  const bool looking = releases_.any();
  releases_.begin(region, std::move(reply), Clock::now());
  if (!looking && releases_.any()) port_.look_later();
}

}  // namespace penstock
