// The gossip socket: a plain thread that owns a ZeroMQ ROUTER for what arrives and one DEALER per
// endpoint spoken to, and drives a StaticMembership in real time. Frames to an endpoint that is not
// connected are dropped, never queued.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/membership/static_membership.hpp"

namespace penstock {

class GossipSocket {
 public:
  struct Setup {
    std::string bind;  // "tcp://10.0.0.1:7500", "tcp://10.0.0.1:*" picks a port, "ipc://..."
    /// What the others are told; "" is what was bound. A port of "*" is the bound one.
    std::string advertise;
    MemberRecord self;  // all but gossip_endpoint, which follows from the two above
    StaticMembership::Options options;
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
  /// Tells the others that this node leaves; returns once they were told, after 500 ms at most.
  void leave();
  /// A connection to the node was seen closed: ask it at once.
  void suspect(const std::string& node);
  std::vector<MemberChange> members() const;

 private:
  GossipSocket();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
