// What is to be passed on: each rumour a bounded number of times, as passengers of frames that are
// sent anyway. Those that were sent least go first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "actors/membership/rumor.hpp"

namespace penstock {

class Dissemination {
 public:
  /// What was queued about the node is forgotten, unless it says the same by another accuser.
  void add(Rumor rumor);

  /// Appends the next ones, `bytes` of them at most; each is given `sends` times in all.
  void take(std::size_t bytes, std::size_t sends, std::vector<Rumor>& into);

  /// Deaths that may be contradicted are not passed on any more.
  void drop_deaths();

  bool empty() const { return queued_ == 0; }
  std::size_t size() const { return queued_; }

 private:
  /// What holds about a node now, and how many entries say it; other entries are void.
  struct Current {
    Standing standing;
    std::size_t entries = 0;
  };

  bool is_void(const Rumor& rumor) const;
  void drop(const Rumor& rumor);
  void drop_most_sent();
  void drop_void();

  std::vector<std::deque<Rumor>> by_sends_;             // newest last
  std::unordered_map<std::uint64_t, Current> current_;  // by name_hash
  std::size_t queued_ = 0;
  std::size_t stored_ = 0;  // void ones too
};

}  // namespace penstock
