#include "actors/membership/dissemination.hpp"

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

/// More than frames carry before they are stale: a node that hears so much drops the most sent.
constexpr std::size_t kMostQueued = 4096;

}  // namespace

void Dissemination::add(Rumor rumor) {
  Current& current = current_[rumor.who->name_hash];
  if (current.standing != rumor.standing()) {
    queued_ -= current.entries;
    current = {rumor.standing(), 0};
  }
  ++current.entries;
  ++queued_;
  if (by_sends_.empty()) by_sends_.emplace_back();
  by_sends_[0].push_back(std::move(rumor));
  if (queued_ > kMostQueued) drop_most_sent();
  if (++stored_ > 2 * kMostQueued) drop_void();
}

void Dissemination::take(std::size_t bytes, std::size_t sends, std::vector<Rumor>& into) {
  std::vector<std::pair<std::size_t, Rumor>> taken;
  for (std::size_t sent = 0; sent < by_sends_.size() && queued_ > 0; ++sent) {
    auto& level = by_sends_[sent];
    while (!level.empty()) {
      Rumor& next = level.back();
      if (!is_void(next)) {
        if (wire_bytes(next) > bytes) break;
        bytes -= wire_bytes(next);
        taken.emplace_back(sent + 1, std::move(next));
      }
      level.pop_back();
      --stored_;
    }
    if (!level.empty()) break;  // the frame is full
  }
  for (auto& [sent, rumor] : taken) {
    into.push_back(rumor);
    if (sent >= sends) {
      drop(rumor);
      continue;
    }
    if (by_sends_.size() <= sent) by_sends_.resize(sent + 1);
    by_sends_[sent].push_back(std::move(rumor));
    ++stored_;
  }
}

void Dissemination::drop_deaths() {
  std::erase_if(current_, [this](const auto& each) {
    const Standing& standing = each.second.standing;
    if (standing.opinion != Opinion::kDead || standing.revision == kFinalRevision) return false;
    queued_ -= each.second.entries;
    return true;
  });
  drop_void();
}

bool Dissemination::is_void(const Rumor& rumor) const {
  const auto current = current_.find(rumor.who->name_hash);
  return current == current_.end() || current->second.standing != rumor.standing();
}

void Dissemination::drop(const Rumor& rumor) {
  if (is_void(rumor)) return;
  const auto current = current_.find(rumor.who->name_hash);
  --queued_;
  if (--current->second.entries == 0) current_.erase(current);
}

void Dissemination::drop_most_sent() {
  for (auto level = by_sends_.rbegin(); level != by_sends_.rend(); ++level) {
    while (!level->empty()) {
      const Rumor oldest = std::move(level->front());
      level->pop_front();
      --stored_;
      if (!is_void(oldest)) return drop(oldest);
    }
  }
}

void Dissemination::drop_void() {
  stored_ = 0;
  for (auto& level : by_sends_) {
    std::erase_if(level, [this](const Rumor& rumor) { return is_void(rumor); });
    stored_ += level.size();
  }
}

}  // namespace penstock
