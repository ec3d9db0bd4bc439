// What a node remembers for those who watch it: how its transfers ended, how long each stage took,
// where the time of the last ones went, and what went wrong lately. Pure; owned by the node actor.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>

#include "actors/clock.hpp"
#include "actors/monitor/histogram.hpp"
#include "actors/protocol/reply.hpp"

namespace penstock {

class Monitor {
 public:
  using WallClock = std::chrono::system_clock;

  /// `traces`: of so many ended transfers.
  explicit Monitor(std::size_t traces);

  /// After its client was told, and its last stage was finished. Takes the stages out of `result`.
  /// What a stream moved was counted with its parts.
  void transfer_ended(TransferResult& result, WallClock::time_point wall);
  /// Something that an operator should see: "card", "member".
  void trouble(const std::string& what, const std::string& words, WallClock::time_point wall);

  /// As the trace operation replies; null when it is not kept.
  nlohmann::json trace(std::uint64_t transfer) const;

  /// {"ended":[{"state","priority","count"}], "paths":[{"direction","path","count","bytes"}],
  ///  "durations":[{"priority", histogram}], "stages":[{"stage", histogram}],
  ///  "streams":[{"state","count"}]}
  nlohmann::json counts() const;
  /// Newest first: [{"unix_ms","what","words"}].
  nlohmann::json troubles() const;

 private:
  using Kind = std::pair<std::string, std::string>;
  struct Tally {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
  };
  struct Trace {
    TransferResult result;  // without what had landed
    WallClock::time_point ended;
  };
  void keep_trace(TransferResult& result, WallClock::time_point wall);

  std::size_t most_traces_;
  std::map<Kind, std::uint64_t> ended_;         // by state and priority
  std::map<Kind, Tally> paths_;                 // by direction and path
  std::map<std::string, Histogram> durations_;  // by priority
  std::array<Histogram, kTransferStages> stages_;
  std::map<std::string, std::uint64_t> streams_;  // ended, by state
  std::deque<std::uint64_t> traced_;              // the oldest first
  std::unordered_map<std::uint64_t, Trace> traces_;
  std::deque<nlohmann::json> troubles_;  // the newest first
};

/// Where a transfer's time went, ended or (`state` says in which state it is) not yet.
nlohmann::json trace_report(const TransferResult& result, std::string_view state, TimePoint now,
                            std::chrono::system_clock::time_point wall);

}  // namespace penstock
