// Third-party transfers as their asker's node sees them: transfers that another node, the executor,
// carries out for clients of this one. Each has its shadow here, with an id of ours and the same
// deadline, which ends exactly once: as the executor says, or by itself when the executor is gone
// or says nothing. Pure; what the executor does is in delegations.hpp.
//
//   waiting -> sending -> running -> ended
//                 \          \-> stopping -> ended
//                  \-> stopping
//
// A shadow whose executor says nothing ends at the latest `stopping` + `margin` after its deadline
// or its cancel.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/clock.hpp"
#include "actors/device/live_shadows.hpp"
#include "actors/device/outbound.hpp"
#include "actors/protocol/reply.hpp"
#include "actors/wire/message.hpp"

namespace penstock {

class Shadows {
 public:
  struct Options {
    /// So long after the deadline the executor is asked to stop, if it has not ended it by itself.
    Milliseconds late{250};
    Milliseconds stopping{4000};  // what it may take the executor to stop and to fence
    Milliseconds margin{1000};    // and its word to come here
    Milliseconds look_every{1000};
    std::size_t unanswered = 64;  // transfers that are being handed to one executor at once
    std::uint64_t waiting_bytes = std::uint64_t{256} << 20;  // of requests not yet handed over
  };
  /// Effects. Called from within the functions below; must not call back into them.
  struct Port {
    /// Asks the node. answered() is called with the token, once, later.
    std::function<void(const std::string& node, std::uint64_t token, Question, TimePoint deadline)>
        ask;
    /// The executor says that the client may not. For the audit; may be left out.
    std::function<void(const std::string& client, const std::string& what)> refused;
    std::function<void(TransferResult)> ended;  // the one terminal event
  };
  struct Asked {
    TransferId id = 0;
    std::string on;    // the executor
    std::string node;  // the other end
    std::string region;
    std::string remote_region;
    Direction direction = Direction::kWrite;
    Lane lane = Lane::kBulk;
    std::string client;  // its name in our allow-list
    bool admin = false;
    std::shared_ptr<const std::vector<std::byte>> request;
    TimePoint received;
    TimePoint accepted;
    TimePoint deadline;
  };

  /// `live`: has the ids of those that have not ended.
  Shadows(Options options, Port port, std::shared_ptr<LiveShadows> live)
      : options_(options), port_(std::move(port)), live_(std::move(live)) {}

  /// kResourceExhausted when requests of so many bytes more cannot wait here.
  Result<void> has_room(std::uint64_t bytes) const;
  void start(Asked asked, TimePoint now);
  /// False: it is no shadow, or has ended.
  bool cancel(TransferId transfer, TimePoint now);
  void answered(std::uint64_t token, const Result<Answer>& answer, TimePoint now);
  /// The executor says that it has ended.
  void over(const std::string& node, const DelegatedEnded& end, TimePoint now);
  /// This run of the node has ended, or is given up: its shadows end as kExecutorDied.
  void executor_lost(const std::string& node, const Error& error, TimePoint now);

  void tick(TimePoint now);
  TimePoint next_tick() const;

  /// As of a transfer of our own, and where it is.
  struct Elsewhere {
    Outbound::Snapshot snapshot;
    std::string on;
    TransferId on_as = 0;
  };
  std::vector<Elsewhere> snapshot() const;
  struct Unfinished {
    std::string state;
    TransferResult result;
  };
  std::optional<Unfinished> unfinished(TransferId transfer) const;
  std::size_t size() const { return shadows_.size(); }

 private:
  using Outcome = TransferResult::State;
  using Remote = TransferResult::Remote;
  enum class State : unsigned char { kWaiting, kSending, kRunning, kStopping };
  enum class Kind : unsigned char { kDelegate, kStop, kLook };
  struct Shadow {
    Asked asked;
    State state = State::kWaiting;
    std::uint32_t sent = 0;   // bytes of the request that the executor has
    std::uint32_t part = 0;   // bytes that are on their way
    TransferId on_as = 0;     // once it was accepted
    std::string seen;         // the executor's state of it
    std::uint64_t bytes = 0;  // as it said
    std::uint64_t total_bytes = 0;
    Outcome outcome = Outcome::kFailed;  // while stopping
    Error reason;                        // the same
    TimePoint due;
    Stages stages;
  };
  struct Executor {
    std::deque<TransferId> waiting;
    std::size_t unanswered = 0;  // transfers being handed over
    bool looking = false;
    TimePoint look = TimePoint::max();
    TransferId looked = 0;  // the last that was asked for
  };
  struct Pending {
    Kind kind;
    std::string node;
    TransferId transfer = 0;
    std::vector<TransferId> looked_at{};
  };
  using Entry = std::map<TransferId, Shadow>::iterator;

  void ask(Pending about, Question question, TimePoint deadline);
  void hand_over(const std::string& node, TimePoint now);
  void send_part(Shadow& shadow, TimePoint now);
  void drop_request(Shadow& shadow);
  void delegated(Entry entry, const Result<Answer>& answer, TimePoint now);
  void stop(Shadow& shadow, Outcome outcome, Error reason, TimePoint now);
  void stop_seen(Entry entry, const Result<Answer>& answer, TimePoint now);
  void look(const std::string& node, Executor& executor, TimePoint now);
  void seen(const Pending& question, const Result<Answer>& answer, TimePoint now);
  void overdue(Entry entry, TimePoint now);
  void set_due(Shadow& shadow, TimePoint due);
  static Outbound::State state_of(const Shadow& shadow);
  static TransferResult result_of(const Shadow& shadow);
  void end(Entry entry, Outcome outcome, Error error, Remote remote, TimePoint now);
  void end(Entry entry, TransferResult result, TimePoint now);

  Options options_;
  Port port_;
  std::shared_ptr<LiveShadows> live_;
  std::map<TransferId, Shadow> shadows_;
  std::map<std::string, Executor> executors_;
  std::map<std::uint64_t, Pending> asked_;  // by token
  std::set<std::pair<TimePoint, TransferId>> due_;
  std::uint64_t waiting_bytes_ = 0;
  std::uint64_t next_token_ = 1;
};

}  // namespace penstock
