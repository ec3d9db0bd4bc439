#include "actors/peer/rails.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// Pairs being chosen, and how many each card has so far.
class Choice {
 public:
  Choice(std::size_t ours, std::size_t theirs) : ours_(ours, 0), theirs_(theirs, 0) {}

  void take(Rail rail) {
    rails_.push_back(rail);
    ++ours_[rail.first];
    ++theirs_[rail.second];
  }
  bool idle_ours(std::size_t i) const { return ours_[i] == 0; }
  bool idle_theirs(std::size_t j) const { return theirs_[j] == 0; }

  /// The card of theirs with the fewest pairs that works with this one of ours.
  void join_ours(std::size_t i, const std::function<bool(Rail)>& works) {
    join(
        theirs_,
        [&](std::size_t j) {
          return Rail{i, j};
        },
        works);
  }
  void join_theirs(std::size_t j, const std::function<bool(Rail)>& works) {
    join(
        ours_,
        [&](std::size_t i) {
          return Rail{i, j};
        },
        works);
  }
  std::vector<Rail> rails() { return std::move(rails_); }

 private:
  template <class RailTo>
  void join(const std::vector<std::size_t>& load, RailTo rail_to,
            const std::function<bool(Rail)>& works) {
    std::size_t best = load.size();
    for (std::size_t other = 0; other < load.size(); ++other)
      if (works(rail_to(other)) && (best == load.size() || load[other] < load[best])) best = other;
    if (best < load.size()) take(rail_to(best));
  }

  std::vector<std::size_t> ours_;
  std::vector<std::size_t> theirs_;
  std::vector<Rail> rails_;
};

}  // namespace

bool are_partners(std::size_t ours, std::size_t theirs, Rail rail) {
  return ours >= theirs ? rail.second == rail.first % theirs : rail.first == rail.second % ours;
}

std::vector<Rail> pair_rails(std::size_t ours, std::size_t theirs,
                             const std::function<bool(Rail)>& works) {
  Choice choice(ours, theirs);
  for (std::size_t k = 0; k < std::max(ours, theirs); ++k)
    if (const Rail rail{k % ours, k % theirs}; works(rail)) choice.take(rail);
  for (std::size_t i = 0; i < ours; ++i)
    if (choice.idle_ours(i)) choice.join_ours(i, works);
  for (std::size_t j = 0; j < theirs; ++j)
    if (choice.idle_theirs(j)) choice.join_theirs(j, works);
  return choice.rails();
}

}  // namespace penstock
