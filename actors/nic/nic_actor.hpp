// The actor of one card: its health and what operators see of it.
#pragma once

#include <string>

#include "actors/caf.hpp"

namespace penstock {

/// Answers AskNicHealth with NicHealth; hears NicChanged from its device actor.
caf::actor spawn_nic(caf::actor_system& system, std::string device, std::string card);

}  // namespace penstock
