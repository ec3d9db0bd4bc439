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
  jobs_->allocate(request, {context.client, context.asker.who},
                  for_the_living(context, request.name));
}

void MemoryRequests::handle(Context context, const RegisterRequest& request) {
  jobs_->register_shared(request, {context.client, context.asker.who},
                         for_the_living(context, request.name));
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

/// A region is in the table before this is called: whoever says meanwhile that the client has died
/// finds either the region there, or this finds that it did.
RegionJobs::Reply MemoryRequests::for_the_living(const Context& context,
                                                 const std::string& region) {
  std::erase_if(lives_, [](const auto& each) { return each.second.expired(); });
  auto life = lives_[context.client].lock();
  if (!life) lives_[context.client] = life = std::make_shared<Life>(true);
  return [life, region, orphans = orphans_, orphaned = port_.orphaned,
          reply = context.reply](Result<nlohmann::json> made) {
    if (made && !*life) {
      const std::scoped_lock lock(orphans->mutex);
      orphans->regions.emplace_back(region, made->at("epoch").get<std::uint64_t>());
      orphaned();
    }
    reply(std::move(made));
  };
}

void MemoryRequests::release_orphans() {
  std::vector<std::pair<std::string, std::uint64_t>> regions;
  {
    const std::scoped_lock lock(orphans_->mutex);
    regions.swap(orphans_->regions);
  }
  for (const auto& [name, epoch] : regions) {
    const auto region = regions_->find(name);
    if (!region || region->epoch != epoch || region->kept) continue;
    if (const auto closed = regions_->close(name, true)) release(*closed, std::nullopt);
  }
}

std::size_t MemoryRequests::client_died(const std::string& client) {
  if (const auto life = lives_.find(client); life != lives_.end()) {
    if (const auto lives = life->second.lock()) *lives = false;
    lives_.erase(life);
  }
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
