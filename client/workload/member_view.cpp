#include "client/workload/member_view.hpp"

namespace penstock::workload {

bool MemberView::update(const nlohmann::json& nodes) {
  std::map<std::string, Member> now;
  auto list = nlohmann::json::array();
  for (const auto& node : nodes) {
    const std::string name = node.value("name", "");
    const std::string state = node.value("state", "");
    const auto incarnation = node.value("incarnation", std::uint64_t{0});
    list.push_back({{"node", name}, {"state", state}, {"incarnation", incarnation}});
    if (state == "connected") now[name].incarnation = incarnation;
  }
  std::lock_guard lock(mutex_);
  for (auto& [name, member] : now) {
    const auto before = members_.find(name);
    if (before != members_.end() && before->second.incarnation == member.incarnation)
      member = before->second;
  }
  members_ = std::move(now);
  const bool changed = list != shown_;
  shown_ = std::move(list);
  return changed;
}

nlohmann::json MemberView::shown() const {
  std::lock_guard lock(mutex_);
  return shown_;
}

std::optional<std::pair<std::string, std::uint64_t>> MemberView::pick(
    std::mt19937_64& random) const {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, std::uint64_t>> ready;
  for (const auto& [name, member] : members_)
    if (member.ready) ready.emplace_back(name, member.incarnation);
  if (ready.empty()) return std::nullopt;
  return ready[random() % ready.size()];
}

std::vector<std::string> MemberView::unproven() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, member] : members_)
    if (!member.ready) names.push_back(name);
  return names;
}

void MemberView::set_ready(const std::string& name, bool ready) {
  std::lock_guard lock(mutex_);
  if (const auto found = members_.find(name); found != members_.end()) found->second.ready = ready;
}

bool MemberView::has(const std::string& name, std::uint64_t incarnation) const {
  std::lock_guard lock(mutex_);
  const auto found = members_.find(name);
  return found != members_.end() && found->second.incarnation == incarnation;
}

bool MemberView::first(const std::string& name, std::uint64_t incarnation) {
  std::lock_guard lock(mutex_);
  return seen_.emplace(name, incarnation).second;
}

}  // namespace penstock::workload
