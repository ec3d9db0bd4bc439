// Where a transfer's time goes: the stages it passes, one after the other on the steady clock, so
// that they always sum up to the whole.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

namespace penstock {

enum class Stage : unsigned char {
  kAdmission,     // from the request's arrival until it was accepted
  kQueue,         // waiting to be opened: for its device, its peer, or others to that peer
  kMetadata,      // the OPEN round trip; a short write crosses with it
  kPosting,       // opened, and nothing posted yet: waiting for room
  kWire,          // from the first operation until the last has completed
  kRecovery,      // stopping, fencing, waiting to try again
  kCompletion,    // until the end was decided, the owner's word included
  kCopy,          // a copy between two regions of this node
  kVerification,  // comparing digests, where that was asked for
  kDelegation,    // with the node that carries it out for us
  kNotification,  // until the client was told
  // Of a stream:
  kOpen,     // parts may be appended
  kClosing,  // nothing more is appended, and parts are under way
};
inline constexpr std::size_t kStages = 13;
inline constexpr std::size_t kTransferStages = kStages - 2;  // the first

std::string_view name_of(Stage stage);

class Stages {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Span {
    Stage stage;
    TimePoint begin;
  };
  /// More are not told apart any longer: what follows counts as the last but one stage.
  static constexpr std::size_t kMostSpans = 64;

  /// From `when` on it is in this stage. Never before the stage it was in until then.
  void enter(Stage stage, TimePoint when);
  /// What was noted as `whole` was so only until `when`; the rest of it was `rest`.
  void split(Stage whole, TimePoint when, Stage rest);
  /// It has left the last stage.
  void finish(TimePoint when);

  bool finished() const { return finished_; }
  const std::vector<Span>& spans() const { return spans_; }
  TimePoint begin() const { return spans_.empty() ? TimePoint() : spans_.front().begin; }
  TimePoint end() const { return end_; }
  /// Of spans()[i]; the last lasts until `now` while it is not finished.
  std::chrono::nanoseconds length(std::size_t i, TimePoint now) const;
  /// Of each stage in all, by its number.
  std::array<std::chrono::nanoseconds, kStages> totals(TimePoint now) const;

 private:
  std::vector<Span> spans_;
  TimePoint end_{};
  bool finished_ = false;
};

}  // namespace penstock
