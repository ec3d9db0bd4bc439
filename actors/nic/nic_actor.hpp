// The actor of one card: its health and what operators see of it.
#pragma once

#include <string>

#include "actors/caf.hpp"

namespace penstock {

/// Answers AskNicHealth with NicHealth; hears NicChanged from its device actor and CardSeen from
/// peers. Logs when the card goes out and when it is back.
caf::actor spawn_nic(caf::actor_system& system, std::string device, std::string card);

}  // namespace penstock
