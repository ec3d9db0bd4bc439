// The devices of this machine, opened: topology, pairing, core plan, cards, pollers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/bell.hpp"
#include "actors/lent_thread.hpp"
#include "actors/local_device.hpp"
#include "actors/settings/settings.hpp"

namespace penstock {

struct Machine {
  std::vector<std::shared_ptr<LocalDevice>> devices;
  std::vector<std::shared_ptr<Bell>> bells;       // by device
  std::vector<std::shared_ptr<LentThread>> lent;  // polling threads that run actors
  std::string description;                        // for the start-up block
};

/// The cards to use: those configured, else every usable one of the provider.
Result<std::vector<CardOffer>> choose_cards(const FabricSettings& settings);

Result<Machine> open_machine(const Settings& settings);

}  // namespace penstock
