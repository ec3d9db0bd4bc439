// How well this node itself does, by how its own questions fare. A node that is slow, or badly
// connected, finds everybody silent: it should doubt itself first, and take more time (Lifeguard's
// local health multiplier).
#pragma once

#include <algorithm>

namespace penstock {

class LocalHealth {
 public:
  /// 0: well. Every wait for somebody else is multiplied by one more than this.
  int score() const { return score_; }

  void answered() { change(-1); }
  void unanswered() { change(1); }
  /// Those whom we asked to help did not even say that they had no answer.
  void helpers_silent(int missing) { change(missing); }
  /// Somebody thought that we were dead: we may have been slow to answer.
  void was_suspected() { change(1); }
  /// This process stood still.
  void stood_still() { change(1); }

 private:
  static constexpr int kWorst = 8;
  void change(int by) { score_ = std::clamp(score_ + by, 0, kWorst); }

  int score_ = 0;
};

}  // namespace penstock
