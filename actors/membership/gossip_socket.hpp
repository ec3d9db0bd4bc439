// The gossip socket: a plain thread that owns a ZeroMQ ROUTER for what arrives and one DEALER per
// endpoint spoken to, and drives Swim in real time. Names of seeds are looked up elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/membership/swim.hpp"
#include "actors/security/key.hpp"

namespace penstock {

class GossipSocket {
 public:
  struct Setup {
    std::string bind;  // "tcp://10.0.0.1:7500", "tcp://10.0.0.1:*" picks a port, "ipc://..."
    /// What the others are told; "" is what was bound. A port of "*" is the bound one.
    std::string advertise;
    MemberRecord self;  // all but gossip_endpoint, which follows from the two above
    Swim::Options options;
    /// The members' common key pair: frames are encrypted, and only whoever has it is heard. None:
    /// everybody is.
    std::optional<KeyPair> keys{};
    std::uint32_t audit_lines_per_s = 10;
    /// Called on the socket's thread, in order; must not block.
    std::function<void(MemberChange)> changed;
  };

  /// Binds before it returns. kInvalidArgument for an endpoint that others could not reach (bound
  /// to all interfaces and nothing to advertise), kAlreadyExists for one that is taken.
  static Result<std::unique_ptr<GossipSocket>> start(Setup setup);
  /// Within a second. Says nothing to the others: that is leave().
  ~GossipSocket();

  /// Our own record as it is announced.
  const MemberRecord& self() const;

  // Any thread.
  /// Tells the others that this node takes no new work (kDraining there). For good. Returns at
  /// once.
  void drain();
  /// Tells the others that this node leaves; returns once they were told, after 500 ms at most.
  void leave();
  /// A connection to the node was seen closed: ask it at once.
  void suspect(const std::string& node);
  /// An operator declares a member gone: kLeft everywhere, for good under its incarnation; if it
  /// still runs it goes silent. kNotFound for a stranger, kInvalidArgument for ourselves, kBusy for
  /// a member that answers unless `force`.
  Result<void> remove(const std::string& node, bool force = false);
  /// How busy we are (transfers in flight); travels with what is sent anyway. Costs a store.
  void set_load(std::uint32_t load);
  /// Strangers that were not let in, since the start.
  std::uint64_t refused() const;
  /// Everybody known but ourselves, by name; members that ended stay listed for
  /// `gossip.forget_dead_s`.
  std::vector<MemberChange> members() const;

 private:
  GossipSocket();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
