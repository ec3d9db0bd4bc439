// Asks all devices and cards of a node what they are doing.
#pragma once

#include <functional>

#include "actors/node/node_actor.hpp"
#include "actors/node/status_report.hpp"

namespace penstock {

/// Asks every device and card, then calls `then` with the answers, as a message to `self`; one that
/// does not answer in time is left out.
void gather(caf::event_based_actor& self, const NodeChildren& children,
            std::function<void(const Gathered&)> then);

}  // namespace penstock
