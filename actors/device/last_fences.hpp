// Final fences that nobody answered in time. Their transfers have ended, but the owner may hold its
// region for them until their lease ends: it is told on, now and then, so that it lets go earlier.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "actors/clock.hpp"
#include "actors/wire/message.hpp"

namespace penstock {

class LastFences {
 public:
  static constexpr Milliseconds kEvery{2000};
  /// Time enough for one repetition over another link.
  static constexpr Milliseconds kPatience{150};

  /// `until`: the end of the lease.
  void add(Incarnation peer, Fence fence, TimePoint until, TimePoint now) {
    const TransferId id = fence.transfer;
    if (!fences_.emplace(id, Entry{peer, std::move(fence), until}).second) return;
    plan(id, now + kEvery);
  }

  /// Calls `ask(peer, fence, deadline)` for each that is due; it returns the question's token.
  template <class Ask>
  void tick(TimePoint now, Ask ask) {
    while (!due_.empty() && due_.begin()->first <= now) {
      const TransferId id = due_.begin()->second;
      due_.erase(due_.begin());
      Entry& entry = fences_.at(id);
      tokens_.erase(entry.token);
      if (now >= entry.until) {
        fences_.erase(id);
        continue;
      }
      entry.token = ask(entry.peer, entry.fence, now + kPatience);
      tokens_[entry.token] = id;
      plan(id, now + kEvery);
    }
  }
  TimePoint next_tick() const { return due_.empty() ? TimePoint::max() : due_.begin()->first; }

  /// `settled`: the owner had its say. False: not one of these questions.
  bool answered(std::uint64_t token, bool settled) {
    const auto found = tokens_.find(token);
    if (found == tokens_.end()) return false;
    const TransferId id = found->second;
    tokens_.erase(found);
    if (settled) forget(id);
    return true;
  }
  /// The incarnation has ended, its memory with it.
  void peer_gone(Incarnation peer) {
    std::set<TransferId> its_own;
    for (const auto& [id, entry] : fences_)
      if (entry.peer == peer) its_own.insert(id);
    for (const TransferId id : its_own) forget(id);
  }
  std::size_t size() const { return fences_.size(); }

 private:
  struct Entry {
    Incarnation peer = 0;
    Fence fence;
    TimePoint until;
    TimePoint due{};
    std::uint64_t token = 0;  // of the newest question
  };
  void plan(TransferId id, TimePoint due) {
    fences_.at(id).due = due;
    due_.emplace(due, id);
  }
  void forget(TransferId id) {
    const auto found = fences_.find(id);
    due_.erase({found->second.due, id});
    tokens_.erase(found->second.token);
    fences_.erase(found);
  }

  std::map<TransferId, Entry> fences_;
  std::set<std::pair<TimePoint, TransferId>> due_;
  std::map<std::uint64_t, TransferId> tokens_;
};

}  // namespace penstock
