// Third-party transfers as their executor sees them: transfers that this node carries out for
// clients of other nodes. Each runs as any other of this node's transfers; what is kept here says
// for whom, so that a question that comes twice starts nothing twice, and that the asker hears of
// the end. Pure; the asker's side is in shadows.hpp.
//
//   arriving -> running -> ended -> told
//       \-> refused, stopped
//
// What an asker asked is remembered for as long as its results would be. An asker that dies or
// leaves is a client that dies: what runs for it is cancelled.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/clock.hpp"
#include "actors/protocol/reply.hpp"
#include "actors/wire/message.hpp"

namespace penstock {

class Delegations {
 public:
  struct Options {
    std::uint64_t request_bytes = std::uint64_t{64} << 20;    // of one request at most
    std::uint64_t arriving_bytes = std::uint64_t{256} << 20;  // of one asker's at once
    std::size_t arriving_most = 128;                          // requests, the same
    Milliseconds arriving_kept{30000};                        // a request whose parts stop coming
    Milliseconds keep{600000};                                // what has ended
    std::size_t keep_most = 100000;                           // of one asker's
    Milliseconds telling{60000};  // how long an end is repeated without a pause
  };
  /// Effects. Called from within the functions below; must not call back into them.
  struct Port {
    /// Accepts the request as one of this node's transfers, or refuses it. `last`: its last part.
    std::function<Result<TransferId>(const std::string& asker, const Delegate& last,
                                     std::shared_ptr<const std::vector<std::byte>> request)>
        run;
    std::function<void(TransferId)> cancel;
    /// Asks the node. answered() is called with the token, once, later.
    std::function<void(const std::string& node, std::uint64_t token, Question, TimePoint deadline)>
        ask;
  };

  Delegations(Options options, Port port) : options_(options), port_(std::move(port)) {}

  // -- what askers ask ---------------------------------------------------------------------------
  Answer delegate(const std::string& asker, Incarnation peer, const Delegate& part, TimePoint now);
  Answer stop(const std::string& asker, Incarnation peer, const StopDelegated& stop, TimePoint now);
  /// What is known of one: its transfer here while it runs, else "ended" or "unknown". Tells an end
  /// again that its asker should have heard.
  struct Place {
    TransferId running = 0;
    std::string state;
  };
  Place place_of(const std::string& asker, Incarnation peer, TransferId transfer, TimePoint now);

  // -- what happens here -------------------------------------------------------------------------
  /// A transfer of this node ended. False: it was none of these.
  bool ended(const TransferResult& result, TimePoint now);
  void answered(std::uint64_t token, const Result<Answer>& answer);
  /// `gone`: this run of it has ended; else it is only silent, and may come back.
  void asker_lost(const std::string& asker, bool gone);
  void asker_back(const std::string& asker, TimePoint now);

  bool runs(TransferId transfer) const { return runs_.contains(transfer); }
  /// That run.
  std::size_t size() const { return runs_.size(); }
  /// That run, or whose asker is here and has not confirmed the end.
  std::size_t unfinished() const { return runs_.size() + untold_; }

 private:
  enum class State : unsigned char { kArriving, kRunning, kEnded, kTold, kRefused };
  struct Entry {
    State state = State::kArriving;
    std::shared_ptr<std::vector<std::byte>> request;
    std::uint32_t total = 0;
    TransferId executed_as = 0;
    std::optional<DelegatedEnded> end;
    Error refused;
    bool telling = false;
    TimePoint touched{};  // while it arrives
  };
  struct Asker {
    Incarnation incarnation = 0;
    bool here = true;
    std::map<TransferId, Entry> entries;  // by the asker's ids
    std::deque<std::pair<TimePoint, TransferId>> over;
    TransferId forgotten = 0;                             // the highest that is
    std::set<std::pair<TimePoint, TransferId>> arriving;  // the one touched longest ago first
    std::uint64_t arriving_bytes = 0;
  };
  struct Run {
    std::string asker;
    Incarnation incarnation = 0;
    TransferId transfer = 0;
  };

  /// A newer life of the node takes the place of the one before. None: it is an older one.
  Asker* asker_of(const std::string& name, Incarnation peer);
  /// Why no more of this asker's requests may begin to arrive.
  std::optional<Error> no_room(const std::string& name, const Asker& asker,
                               std::uint64_t bytes) const;
  Answer arrive(const std::string& name, Asker& asker, Entry& entry, const Delegate& part,
                TimePoint now);
  Answer refuse(Asker& asker, TransferId transfer, Entry& entry, Error error, TimePoint now);
  void drop_request(Asker& asker, TransferId transfer, Entry& entry);
  void tell(const std::string& name, Asker& asker, Entry& entry, TimePoint now);
  void forget(Asker& asker, TimePoint now);

  Options options_;
  Port port_;
  std::map<std::string, Asker> askers_;
  std::unordered_map<TransferId, Run> runs_;         // by our ids
  std::unordered_map<std::uint64_t, Run> tellings_;  // by token
  std::size_t untold_ = 0;
  std::uint64_t next_token_ = 1;
};

}  // namespace penstock
