// Something that a sleeping poller can wait on for one card.
#pragma once

#include "transport/fabric/domain.hpp"

namespace penstock {

/// A completion queue that no endpoint reports to. Where the provider's progress is driven by
/// sockets, its file descriptor is readable exactly while some socket of the domain has work; the
/// queues with endpoints stay without wait objects, so that no completion has to signal one (their
/// signal, once set, is not cleared by libfabric 1.17's fi_trywait and the descriptor would stay
/// readable for ever).
class WaitObject {
 public:
  /// Without a usable wait object `fd()` is -1; never fails.
  explicit WaitObject(Domain& domain);
  int fd() const { return fd_; }
  /// False: poll again instead of sleeping.
  bool may_wait() const;

 private:
  Domain& domain_;
  Fid<fid_cq> queue_;
  int fd_ = -1;
};

}  // namespace penstock
