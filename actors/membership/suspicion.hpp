// The time that a suspect has to contradict. It starts long, for one accuser may be the one who is
// in trouble, and shrinks as others come to the same opinion by themselves.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/clock.hpp"

namespace penstock {

class Suspicion {
 public:
  struct Terms {
    Clock::duration shortest{0};
    Clock::duration longest{0};
    std::size_t confirmations = 0;  // beyond the first accuser's, that make it the shortest
  };

  Suspicion(std::uint32_t accuser, Terms terms, TimePoint now)
      : terms_(terms), since_(now), accusers_{accuser} {}

  /// False: nothing new, or nobody needs more of it.
  bool confirm(std::uint32_t accuser) {
    if (accusers_.size() > terms_.confirmations ||
        std::find(accusers_.begin(), accusers_.end(), accuser) != accusers_.end())
      return false;
    accusers_.push_back(accuser);
    return true;
  }

  /// Dead then, unless contradicted before.
  TimePoint deadline() const {
    if (terms_.confirmations == 0) return since_ + terms_.shortest;
    const double part = std::log(static_cast<double>(accusers_.size())) /
                        std::log(static_cast<double>(terms_.confirmations) + 1);
    const auto range = std::chrono::duration<double>(terms_.longest - terms_.shortest);
    return since_ +
           std::max(terms_.shortest,
                    terms_.longest - std::chrono::duration_cast<Clock::duration>(range * part));
  }

  /// The clock ran while this process stood still.
  void postpone(Clock::duration time) { since_ += time; }

  std::size_t accusers() const { return accusers_.size(); }
  bool accused_by(std::uint32_t accuser) const {
    return std::find(accusers_.begin(), accusers_.end(), accuser) != accusers_.end();
  }

 private:
  Terms terms_;
  TimePoint since_;
  std::vector<std::uint32_t> accusers_;
};

}  // namespace penstock
