#include "transport/fabric/wait_object.hpp"

namespace penstock {

WaitObject::WaitObject(Domain& domain) : domain_(domain) {
  // Other providers may have wait objects on their queues (verbs has); the tick serves them until a
  // machine is there to prove it.
  if (!domain.traits().waits_on_domain) return;
  fi_cq_attr attributes{};
  attributes.size = 1;
  attributes.format = FI_CQ_FORMAT_CONTEXT;
  attributes.wait_obj = FI_WAIT_FD;
  fid_cq* queue = nullptr;
  if (fi_cq_open(domain.domain(), &attributes, &queue, nullptr) != 0) return;
  queue_.reset(queue);
  int fd = -1;
  if (fi_control(&queue->fid, FI_GETWAIT, &fd) == 0) fd_ = fd;
}

bool WaitObject::may_wait() const {
  if (fd_ < 0) return true;
  fid* waited = &queue_->fid;
  return fi_trywait(domain_.fabric(), &waited, 1) == FI_SUCCESS;
}

}  // namespace penstock
