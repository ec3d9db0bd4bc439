// The yardstick for many cards: a bare libfabric loop over N endpoints, one thread that drives them
// in turn, an endless stream of random pages on each. Window and flags are those of the loop for
// one card (raw_loop.hpp); the target is RawTarget, once per card.
#pragma once

#include <memory>
#include <random>
#include <span>
#include <vector>

#include "transport/bench/raw_loop.hpp"

namespace penstock {

class RawStreams {
 public:
  /// Card i writes pages of `page_bytes` out of its own part of `memory` into targets[i], whose
  /// memory has the size of such a part. `cards` and `targets` have one length; the parts are equal
  /// and hold at least one page.
  static Result<std::unique_ptr<RawStreams>> open(const std::vector<RawOptions>& cards,
                                                  const std::vector<RawDescription>& targets,
                                                  std::span<std::byte> memory,
                                                  std::uint64_t page_bytes);
  ~RawStreams();

  /// One round over all cards: posts on each what its window has room for, then takes completions.
  Result<void> step();
  /// Posts nothing more and waits until everything has completed.
  Result<void> finish();
  /// Bytes whose writes have completed, by card.
  std::vector<std::uint64_t> completed_bytes() const;

 private:
  struct Card;
  explicit RawStreams(std::uint64_t page_bytes);
  Result<void> post(Card& card);
  Result<void> reap(Card& card);

  std::vector<std::unique_ptr<Card>> cards_;
  std::uint64_t page_bytes_;
  std::chrono::milliseconds patience_{0};
};

}  // namespace penstock
