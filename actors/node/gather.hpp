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

struct TraceQuestion {
  const Ledger& ledger;
  const Streams& streams;
  const Monitor& monitor;
  TransferId transfer = 0;
  std::size_t kept = 0;  // traces, for the words of an error
};
/// The trace of a transfer that ended or, asked of its device, of one under way. Ledger and monitor
/// are the actor's own and live as long as it does.
void find_trace(caf::event_based_actor& self, const NodeChildren& children, TraceQuestion question,
                std::function<void(Result<nlohmann::json>)> then);

}  // namespace penstock
