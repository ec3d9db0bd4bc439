// A whole penstockd but for its command line: starts devices, actors, gossip and gateway in the
// right order, and takes them down in the reverse.
#pragma once

#include <memory>
#include <string>

#include "actors/clock.hpp"
#include "actors/settings/settings.hpp"
#include "transport/error.hpp"

namespace penstock {

class Service {
 public:
  /// Returns once the service answers requests.
  static Result<std::unique_ptr<Service>> start(const Settings& settings);
  /// Stops at once; drain() first for an orderly end.
  ~Service();

  /// The start-up block: who this is, its devices and cards, why they are paired, what is bound.
  const std::string& banner() const;

  /// Takes no new work and waits until nothing is in flight; at the deadline what is left is
  /// cancelled. Then tells the other nodes that this one leaves. True: everything ended by itself.
  bool drain(Milliseconds deadline);

 private:
  Service();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
