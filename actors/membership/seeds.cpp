#include "actors/membership/seeds.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// First knocks are quick, since a cluster starts together.
constexpr Milliseconds kFirstKnock{50};
constexpr Milliseconds kLastKnock{1000};
constexpr std::size_t kKnocksAtOnce = 3;

template <class List>
bool contains(const List& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

}  // namespace

Seeds::Seeds(const std::vector<std::string>& seeds, std::string own_endpoint, std::uint64_t seed)
    : own_endpoint_(std::move(own_endpoint)), random_(seed) {
  for (const std::string& name : seeds)
    seeds_.push_back({name, {name}, "", name == own_endpoint_, TimePoint::min(), kFirstKnock});
}

std::vector<std::string> Seeds::due(const Alive& alive, TimePoint now) {
  std::vector<std::string> names;
  for (Seed& seed : seeds_) {
    if (seed.next > now || quiet(seed, alive)) continue;
    names.push_back(seed.name);
    // Up to a tenth earlier, so that nodes that started together do not knock in step for ever.
    const Clock::duration whole = seed.interval;
    seed.next = now + whole - whole / 1000 * static_cast<int>(random_() % 101);
    seed.interval = std::min(seed.interval * 2, kLastKnock);
  }
  return names;
}

TimePoint Seeds::next(const Alive& alive) const {
  TimePoint next = TimePoint::max();
  for (const Seed& seed : seeds_)
    if (seed.next < next && !quiet(seed, alive)) next = seed.next;
  return next;
}

const std::string* Seeds::any() {
  std::vector<const std::string*> others;
  for (const Seed& seed : seeds_)
    if (!seed.ours) others.push_back(&seed.name);
  return others.empty() ? nullptr : others[random_() % others.size()];
}

std::vector<std::string> Seeds::addresses(std::string_view name, std::vector<std::string> found) {
  for (Seed& seed : seeds_)
    if (seed.name == name) seed.addresses = found;
  std::erase_if(found, [&](const std::string& address) {
    return address == own_endpoint_ || contains(own_addresses_, address);
  });
  std::shuffle(found.begin(), found.end(), random_);
  if (found.size() > kKnocksAtOnce) found.resize(kKnocksAtOnce);
  return found;
}

void Seeds::answered(const std::string& endpoint, const std::string& node) {
  for (Seed& seed : seeds_)
    if (contains(seed.addresses, endpoint)) seed.node = node;
}

void Seeds::answered_by_ourselves(const std::string& endpoint) {
  if (endpoint.empty() || contains(own_addresses_, endpoint)) return;
  for (Seed& seed : seeds_) {
    if (!contains(seed.addresses, endpoint)) continue;
    if (!contains(own_addresses_, endpoint)) own_addresses_.push_back(endpoint);
    seed.ours = seed.addresses.size() == 1;
  }
}

void Seeds::ended(const std::string& node, TimePoint now) {
  for (Seed& seed : seeds_) {
    if (seed.node != node) continue;
    seed.interval = kFirstKnock;
    seed.next = now;
  }
}

bool Seeds::quiet(const Seed& seed, const Alive& alive) {
  return seed.ours || (!seed.node.empty() && alive.node(seed.node)) || alive.endpoint(seed.name);
}

}  // namespace penstock
