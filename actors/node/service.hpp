// A whole penstockd but for its command line: starts devices, actors, gossip and gateway in the
// right order, and takes them down in the reverse.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/clock.hpp"
#include "actors/settings/settings.hpp"
#include "transport/error.hpp"

namespace penstock {

class Service {
 public:
  /// Called from a thread of the service when a client or another node asks that it drains; a
  /// deadline of 0 is the configured one. Must not block.
  using DrainAsked = std::function<void(Milliseconds deadline)>;

  /// Returns once the service answers requests. Without `drain_asked` it cannot be drained on
  /// request.
  static Result<std::unique_ptr<Service>> start(const Settings& settings,
                                                DrainAsked drain_asked = {});
  /// Stops at once; drain() first for an orderly end.
  ~Service();

  /// The start-up block: who this is, its devices and cards, why they are paired, what is bound.
  const std::string& banner() const;

  /// Reads the list of clients again (security.allow_list). After an error the old one stays.
  Result<void> reload();

  /// Takes no new work, tells the other nodes so, and waits until nothing is in flight, of theirs
  /// neither; at the deadline what is left is cancelled. Then tells the other nodes that this one
  /// leaves. True: everything ended by itself.
  bool drain(Milliseconds deadline);

 private:
  Service();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
