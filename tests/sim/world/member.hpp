// One run of one node of the simulated cluster: a SimNode, the real membership beside it, and what
// node_actor does between them and the clients: admission, the ledger, peers as members come and
// go, drain.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/membership/swim.hpp"
#include "actors/node/admission.hpp"
#include "actors/node/drain.hpp"
#include "actors/node/ledger.hpp"
#include "actors/node/streams.hpp"
#include "actors/node/third_party.hpp"
#include "tests/sim/nodes/sim_node.hpp"
#include "tests/sim/world/gossip_net.hpp"

namespace penstock::sim {

struct SimMemberOptions {
  SimNodeOptions node;
  Swim::Options swim;
  std::string endpoint;  // of its gossip
  TransferId first_id = 1;
  Milliseconds drain_settle{100};
  Shadows::Options shadows;
  Milliseconds own_pages{2000};
  PlanLimits plan;
};

struct SimMemberObserver {
  SimNodeObserver node;  // of which `trouble` and `drain_asked` are the member's own
  std::function<void(const MemberChange&)> changed;
  std::function<void()> drained;
  /// What another node's client asked for runs here as a transfer of ours, or is refused.
  std::function<void(TransferId shadow, const Result<TransferId>& as, TimePoint deadline)>
      carried_out;
  /// An earlier run of the node had a later clock.
  std::function<void(Incarnation)> outrun;
  std::function<void(const std::string& what)> broke;
};

class SimMember {
 public:
  SimMember(Wire& wire, GossipNet& gossip, SimMemberOptions options, SimMemberObserver observer);

  // -- what clients ask --------------------------------------------------------------------------
  Result<TransferId> transfer(const TransferSpec& spec);
  /// The same, carried out by another node.
  Result<TransferId> transfer_on(const std::string& executor, const TransferSpec& spec);
  void cancel(TransferId transfer);
  Result<TransferId> open_stream(const TransferSpec& terms);
  Result<TransferId> append(const AppendRequest& part);
  Result<void> close_stream(const CloseRequest& request);
  void drain();
  /// Asks another node to drain; false when it is not connected.
  bool ask_to_drain(const std::string& node);

  // -- simulation --------------------------------------------------------------------------------
  std::size_t step();
  bool restless();
  void crash();
  /// The process stands still (SIGSTOP); its cards do not.
  void stand_still(bool still);
  SimNode& node() { return node_; }
  const SimNode& node() const { return node_; }
  const Swim& swim() const { return *swim_; }
  const Ledger& ledger() const { return ledger_; }
  const Streams& streams() const { return streams_; }
  const ThirdPartyTransfers& third_party() const { return third_party_; }
  const std::string& name() const { return options_.node.name; }
  const std::string& endpoint() const { return options_.endpoint; }
  Incarnation incarnation() const { return options_.node.incarnation; }
  bool draining() const { return drain_.has_value(); }
  /// It takes part for us, and there is a peer for it.
  bool here(const std::string& node, Incarnation incarnation) const;
  bool connected(const std::string& node) const;

 private:
  struct Known {
    MemberRecord record;
    MemberState state = MemberState::kAlive;
    bool here = false;
    bool connected = false;
    bool peer = false;
  };

  TimePoint now() const { return wire_.network.now(); }
  SimNodeObserver node_observer();
  void hear(const std::vector<std::byte>& frame);
  Result<void> takes_work(const std::string& node) const;
  Result<Admitted> checked(const TransferSpec& spec, bool part_of_stream);
  void ended(TransferResult result);
  ThirdPartyTransfers::Port third_party_port();
  void node_asked(const std::string& from, Incarnation peer, std::uint64_t sequence,
                  const Question& question);
  void watch_shadows();
  void shadow_ended(const TransferResult& result, Incarnation executor, TimePoint until);
  void after_swim();
  void member_changed(const MemberChange& change);
  void member_departed(const MemberChange& change);
  void part(Known& member, const Error& error, bool gone);
  void drain_check();

  Wire& wire_;
  GossipNet& gossip_;
  SimMemberOptions options_;
  SimMemberObserver observer_;
  std::deque<std::function<void()>> mail_;  // the node actor's
  SimNode node_;
  std::unique_ptr<Swim> swim_;
  Ledger ledger_;
  Streams streams_;
  ThirdPartyTransfers third_party_;
  TimePoint shadows_due_ = TimePoint::max();
  std::map<std::string, Known> members_;
  std::optional<Drain> drain_;
  bool drained_ = false;
  bool crashed_ = false;
  bool still_ = false;
  std::vector<std::vector<std::byte>> unheard_;  // gossip that came while it stood still
  TimePoint ticking_ = TimePoint::max();
};

}  // namespace penstock::sim
