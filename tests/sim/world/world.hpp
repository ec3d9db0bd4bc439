// A cluster of 3 to 8 simulated nodes in one thread and on one virtual clock: real device, peer,
// poller and membership logic, simulated cards and network, real bytes. A seed decides what clients
// ask for and all that goes wrong (weather.hpp); the promises of docs/architecture.md are checked
// while it runs and at the end. The same seed runs the same way each time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/world/member.hpp"
#include "tests/sim/world/store.hpp"
#include "tests/sim/world/weather.hpp"

namespace penstock::sim {

/// One run of a node.
struct Life {
  std::size_t machine = 0;
  std::size_t number = 0;
  std::unique_ptr<SimMember> member;
  std::map<std::string, std::shared_ptr<Store>> stores;  // regions that there are now
  std::vector<std::shared_ptr<Store>> all_stores;
  bool ended = false;  // crashed or stopped
  bool paused = false;
  bool stood_still = false;  // some time
  bool outrun = false;
};

class World {
 public:
  explicit World(std::uint64_t seed);
  ~World();
  /// Runs to the end, or to the first thing that broke.
  void run();

  const std::vector<std::string>& failures() const { return failures_; }
  /// What happened, a line each.
  std::string history() const;
  /// Of all that happened.
  std::uint64_t digest() const { return network_.digest(); }
  Clock::duration simulated() const { return network_.now() - began_; }
  std::size_t asked() const { return moves_.size(); }
  std::size_t ended() const { return ended_; }
  std::size_t done() const { return done_; }
  std::uint64_t landed_late() const { return wire_.landed_late; }

 private:
  /// A place that a node runs at, once or several times one after the other.
  struct Machine {
    std::string name;
    std::string endpoint;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> addresses;
    std::int64_t wall_clock_ns = 0;  // what it is ahead
    bool dark = false;               // off: nothing answers, not even with a refusal
    Life* life = nullptr;
  };
  struct Piece {
    std::size_t source_page = 0;
    std::size_t destination_page = 0;
    Store::Claim source;
    Store::Claim destination;
  };
  struct StreamRun;
  struct Errand;
  /// What a client wants, but for the pages.
  struct Course {
    std::size_t from = 0;
    std::size_t to = 0;
    Life* life = nullptr;
    Life* asker = nullptr;  // has it carried out by the other
    TransferSpec spec{};
    TimePoint deadline{};
    bool small = false;  // so that it goes inside its question, where it may
    bool hurried = false;
    bool undisturbed = false;  // has to succeed
  };
  /// One of the regions that a transfer may have to do with.
  struct Side {
    std::shared_ptr<Store> store;
    Life* life;
    bool let_go = false;  // nothing of the transfer may happen there any more
    bool overwritten = false;
    bool over = false;  // it was open there, and is no more
    bool given_back = false;
  };
  struct Move {
    std::size_t number = 0;
    Life* initiator = nullptr;
    TransferId id = 0;
    StreamRun* stream = nullptr;
    std::uint32_t part = 0;
    std::string remote_node;
    std::string remote_region;
    bool write = true;
    bool any_epoch = false;
    bool stale_epoch = false;
    bool undisturbed = false;  // has to succeed
    bool notify = false;
    bool notified = false;
    bool ended = false;
    bool done = false;
    bool pending = false;  // asked for elsewhere: its executor does not know of it yet
    bool may_land = true;  // not ended, or its owner's lease has not
    std::vector<Piece> pieces;
    Side local;
    std::vector<Side> remotes;
    TimePoint deadline;
    std::optional<TimePoint> cancelled;
  };
  struct StreamRun {
    Course course;
    TransferId id = 0;
    std::size_t planned = 0;
    std::uint32_t appended = 0;
    std::size_t under_way = 0;
    std::uint32_t done = 0;
    bool closed = false;
    bool left_open = false;  // nobody closes it
    bool ended = false;
    std::optional<TimePoint> cancelled;
  };

  /// What another node carries out; until it has begun its Move is known by the shadow's id.
  struct Errand {
    Life* asker = nullptr;
    TransferId shadow = 0;
    Move* move = nullptr;
    TimePoint deadline;
    bool undisturbed = false;
    bool came = false;     // to its executor
    bool carried = false;  // it runs, or did
    bool never = false;    // and never will
    bool ended = false;    // for its asker
    bool quiet = false;    // the same
  };

  template <class... Args>
  void note(fmt::format_string<Args...> text, Args&&... args);
  template <class... Args>
  void broke(fmt::format_string<Args...> text, Args&&... args);
  std::uint64_t below(std::uint64_t limit) { return network_.below(limit); }
  bool chance(double probability) { return network_.chance(probability); }
  Clock::duration some(Clock::duration most) {
    return Clock::duration(
        static_cast<Clock::rep>(below(static_cast<std::uint64_t>(most.count()))));
  }
  std::size_t any_victim();
  std::size_t any_machine() { return below(machines_.size()); }

  // world.cpp: nodes and time
  void start(std::size_t machine);
  SimMemberOptions options_of(std::size_t machine, Incarnation incarnation);
  std::vector<std::string> seeds_of(std::size_t machine) const;
  SimMemberObserver observer_of(Life* life);
  Incarnation new_incarnation(const Machine& machine);
  void end_life(std::size_t machine, bool dark);
  void settle();
  void run_for(Clock::duration time);
  void look();
  bool apart(std::uint32_t from, std::uint32_t to) const;
  double loss_between(std::uint32_t from, std::uint32_t to, double loss) const;

  // world_faults.cpp
  void plan_faults(Clock::duration time);
  void card_fault(std::size_t machine);
  void crash(std::size_t machine);
  void drain(std::size_t machine);
  void cut(std::size_t machine);
  void pause(std::size_t machine);
  void release(std::size_t machine);
  void go_on(Life& life);
  void jump(std::size_t machine);
  void send_garbage(std::size_t machine);
  void heal();

  // world_transfers.cpp
  void add_region(Life* life, const std::string& name);
  void begin();
  Move* ask(const Course& course, StreamRun* stream);
  void cancel_later(Move& move);
  bool take_pieces(Move& move, Store& local, Store& remote, std::size_t pages);
  void attach(Move& move, Side& side, bool source);
  void let_go(Move& move, Side& side, const char* why);
  void give_back(Move& move, Side& side);
  bool holds(const Move& move, const Side& side) const;
  void ended(Life* life, const TransferResult& result);
  void after_lease(Move& move);
  void initiator_ended(Life* life);
  void check_failed(const Move& move, const TransferResult& result);
  void notified(Life* life, const Notification& notification);
  void broken(Life* life, TransferId id);
  void released(Life* life, const std::string& region);

  // world_streams.cpp
  void begin_stream(Course course, bool cancelled);
  void go_on(StreamRun& stream);
  void cancel(StreamRun& stream);
  void part_ended(const Move& move, const TransferResult& result);
  void stream_ended(Life* life, const TransferResult& result);

  // world_errands.cpp
  void begin_errand(const Course& course, Move& move);
  void cancel(Errand& errand);
  void carried_out(Life* life, TransferId shadow, const Result<TransferId>& as, TimePoint deadline);
  void never_runs(Errand& errand, const char* why);
  void shadow_ended(Life* life, const TransferResult& result);
  void check_errands();

  // world_checks.cpp
  void check_memory(const char* when);
  std::string whose(const Store& store, const Store::Wrong& wrong) const;
  void check_death(const Life& life, const MemberChange& change);
  void check_end();
  void check_members();
  void check_nothing_left(Life& life);

  ClusterWeather weather_;
  SimNetwork network_;
  Wire wire_;
  GossipNet gossip_;
  TimePoint began_;
  std::vector<Machine> machines_;
  std::vector<std::unique_ptr<Life>> lives_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> cuts_;  // from, to: how many of them
  std::map<TransferId, std::unique_ptr<Move>> moves_;
  std::size_t asked_ = 0;
  std::map<TransferId, std::unique_ptr<StreamRun>> streams_;
  std::map<TransferId, Errand> errands_;  // by shadow
  std::size_t ended_ = 0;
  std::size_t done_ = 0;
  bool calm_ = false;  // nothing more goes wrong
  std::vector<std::string> history_;
  std::vector<std::string> failures_;
};

}  // namespace penstock::sim
