// Completion queues and endpoints of a card.
#pragma once

#include <cstddef>

#include "transport/fabric/domain.hpp"

namespace penstock {

/// A queue without a wait object: signalling would cost the data path a system call.
Result<Fid<fid_cq>> open_completion_queue(Domain& domain, std::size_t entries);

/// An enabled endpoint that reports everything to `queue`. `inbound_count`, where given, counts
/// what peers read and write here.
Result<Fid<fid_ep>> open_endpoint(Domain& domain, fid_cq* queue, fid_cntr* inbound_count = nullptr);

/// fi_getname.
Result<FabricAddress> endpoint_address(fid_ep* endpoint);

}  // namespace penstock
