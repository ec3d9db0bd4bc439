// The client after a restart of its service: the regions come back before anything else goes on.
#include <algorithm>

#include "client/cpp/core.hpp"

namespace penstock::client {

void Core::keep(const std::shared_ptr<RegionState>& region) {
  std::lock_guard lock(mutex_);
  regions_.push_back(region);
}

void Core::drop(const RegionState* region) {
  std::lock_guard lock(mutex_);
  std::erase_if(regions_, [&](const auto& kept) { return kept.get() == region; });
}

void Core::leave(const std::string& region) {
  if (options_.lease_ms == 0) return;
  try {
    if (!on_own_thread()) return void(call("keep", {{"name", region}}));
    ask("keep", {{"name", region}}, [](const Outcome&) {});
  } catch (const Error&) {
    // A service that knows no leases, or none at all: then nothing is to be left.
  }
}

/// One after the other, in the order in which they were made first; then everything else goes on.
/// A connection that breaks meanwhile is followed by another hello, which comes here again.
void Core::make_regions_again() {
  if (!to_make_.empty()) return make_again(to_make_.front());
  if (restart_) {
    if (options_.restarted) options_.restarted(*restart_);
    restart_.reset();
  }
  go_on();
}

void Core::make_again(const std::shared_ptr<RegionState>& region) {
  Request request{.id = next_id(),
                  .operation = region->operation(),
                  .timeout_ms = options_.memory_timeout_ms,
                  .done = [this, region, connection = connections_](const Outcome& outcome) {
                    if (connection != connections_ || !connected_) return;
                    auto* error = std::get_if<Error>(&outcome);
                    // Our own first try, whose answer went with its connection, or somebody's:
                    // the service knows.
                    if (error != nullptr && error->code() == "ALREADY_EXISTS")
                      return take_as_it_is(region);
                    made_again(region, outcome);
                  }};
  request.message = encode_request(request.id, region->operation(), region->fields());
  send(pending_.add(std::move(request), Clock::now()));
}

void Core::take_as_it_is(const std::shared_ptr<RegionState>& region) {
  Request request{
      .id = next_id(),
      .operation = "regions",
      .timeout_ms = options_.timeout_ms,
      .done = [this, region, connection = connections_](const Outcome& outcome) {
        if (connection != connections_ || !connected_) return;
        auto* reply = std::get_if<Json>(&outcome);
        if (reply == nullptr) return made_again(region, outcome);
        const auto before = region->info();
        for (const auto& each : reply->value("regions", Json::array()))
          if (each.value("name", "") == before.name &&
              each.value("bytes", std::uint64_t{0}) == before.bytes && each.value("yours", false))
            return made_again(region, each);
        made_again(region, Error("ALREADY_EXISTS",
                                 "another region has the name '" + before.name + "' now"));
      }};
  request.message = encode_request(request.id, "regions", Json::object());
  send(pending_.add(std::move(request), Clock::now()));
}

void Core::made_again(const std::shared_ptr<RegionState>& region, const Outcome& outcome) {
  std::erase(to_make_, region);
  auto result = outcome;
  try {
    if (auto* reply = std::get_if<Json>(&outcome))
      region->renew(read_region(reply->contains("region") ? (*reply)["region"] : *reply));
  } catch (const Error& error) {
    result = error;
  }
  if (restart_) {
    const auto name = region->info().name;
    if (auto* error = std::get_if<Error>(&result)) {
      restart_->lost.emplace_back(error->code(), "region '" + name + "': " + error->message());
    } else {
      restart_->regions.push_back(name);
    }
  }
  make_regions_again();
}

}  // namespace penstock::client
