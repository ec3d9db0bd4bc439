#include "actors/node/releases.hpp"

#include <utility>

namespace penstock {

bool Releases::dispose(const Open& open) {
  return jobs_.dispose(open.region,
                       open.reply ? *open.reply : RegionJobs::Reply([](Result<nlohmann::json>) {}));
}

void Releases::begin(const std::shared_ptr<Region>& region, std::optional<RegionJobs::Reply> reply,
                     TimePoint now) {
  Open open{region, std::move(reply), now + patience_};
  if (dispose(open)) return;
  evict_(region->name);
  open_.push_back(std::move(open));
}

void Releases::look(TimePoint now) {
  std::erase_if(open_, [&](const Open& open) {
    if (dispose(open)) return true;
    if (!open.reply || now < open.deadline) return false;
    (*open.reply)(fail(ErrorCode::kBusy,
                       "region '{}' is still used by {} transfers and is open again: ask again",
                       open.region->name, open.region->uses.load()));
    open.region->closing = false;
    return true;
  });
}

}  // namespace penstock
