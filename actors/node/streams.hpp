// Transfers that stay open: parts are appended, each a transfer with an end of its own, until the
// stream is closed. Its one terminal event comes when it takes no more parts and the last of them
// has ended. Pure; time is passed in.
//
//   open -> closing -> done
//   open | closing -> stopping -> failed | cancelled | expired
//
// What ends a stream early: a part that does not end as done, a part that is refused, a cancel, the
// deadline. The parts under way are then cancelled (at the deadline they end by themselves).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/clock.hpp"
#include "actors/protocol/reply.hpp"
#include "actors/protocol/request.hpp"

namespace penstock {

class Streams {
 public:
  using Outcome = TransferResult::State;
  /// Effects. cancel() may come back by part_ended() before it returns.
  struct Port {
    std::function<void(TransferId part)> cancel;
    std::function<void(TransferResult)> ended;  // the one terminal event
    /// Whether an ended stream is still to be remembered, for requests that come again.
    std::function<bool(TransferId)> remembered;
  };
  static constexpr std::uint32_t kMostParts = 65536;      // of one stream
  static constexpr std::size_t kMostOpenOfClient = 1024;  // streams

  explicit Streams(Port port) : port_(std::move(port)) {}

  /// What all parts have in common.
  struct Terms {
    TransferSpec spec;  // one target; no layout
    std::string node;   // the target's
    std::string owner;  // the client
    TimePoint received;
    TimePoint accepted;
    TimePoint deadline;
  };
  void open(TransferId stream, Terms terms);

  struct Next {
    TransferId repeated = 0;  // it was appended before, as this transfer
    TransferSpec spec{};      // what is to be admitted otherwise
    TimePoint deadline{};
  };
  /// Whether this part may be appended now. A refusal changes nothing: see refused().
  Result<Next> next(const AppendRequest& request) const;
  /// The part that next() let in runs as this transfer.
  void appended(TransferId stream, TransferId part, std::uint64_t bytes);
  /// A part was not taken, so that it would be missing: an open stream ends as failed.
  void refused(TransferId stream, std::uint32_t part, const Error& error, TimePoint now);
  /// Whether close() will do what it says.
  Result<void> can_close(const CloseRequest& request) const;
  /// No more parts. Where not so many were appended, one was lost: it ends as failed.
  void close(const CloseRequest& request, TimePoint now);

  /// `part` says of which stream it is one.
  void part_ended(const TransferResult& part, TimePoint now);
  /// False: it is no stream, or has ended.
  bool cancel(TransferId stream, TimePoint now);

  /// When expire() is due.
  TimePoint next_deadline() const {
    return deadlines_.empty() ? TimePoint::max() : deadlines_.begin()->first;
  }
  void expire(TimePoint now);

  /// Streams that have not ended.
  std::size_t size() const { return live_.size(); }
  std::size_t open_of(const std::string& owner) const {
    const auto found = open_of_.find(owner);
    return found == open_of_.end() ? 0 : found->second;
  }
  std::vector<TransferId> newest(std::size_t limit) const;
  /// Of one that has not ended, as the transfers reply has it; null otherwise. `moving`: bytes of
  /// the parts under way that have landed.
  nlohmann::json report(TransferId stream, std::uint64_t moving, TimePoint now) const;
  /// What is known of its result.
  std::optional<TransferResult> unfinished(TransferId stream, TimePoint now) const;

 private:
  enum class State : unsigned char { kOpen, kClosing, kStopping, kEnded };
  struct Stream {
    Terms terms;
    State state = State::kOpen;
    bool closed = false;
    std::vector<TransferId> parts;
    std::set<TransferId> under_way;
    std::uint64_t total_bytes = 0;
    TransferResult result;  // so far
  };
  static std::string_view name_of(State state);
  static Error why_ended(const Stream& stream);
  void stop(TransferId id, Outcome outcome, Error error, bool cancel_parts, TimePoint now);
  void settle(TransferId id, TimePoint now);
  static TransferResult result_of(const Stream& stream, TimePoint now);

  Port port_;
  std::unordered_map<TransferId, Stream> streams_;
  std::set<TransferId> live_;  // have not ended
  std::unordered_map<std::string, std::size_t> open_of_;
  std::set<std::pair<TimePoint, TransferId>> deadlines_;
  std::deque<TransferId> ended_;  // by time
};

}  // namespace penstock
