#include "actors/nic/nic_actor.hpp"

#include <spdlog/spdlog.h>

#include "actors/messages.hpp"

namespace penstock {
namespace {

class NicActor : public caf::event_based_actor {
 public:
  NicActor(caf::actor_config& config, std::string device, std::string card)
      : caf::event_based_actor(config), device_(std::move(device)) {
    health_.name = std::move(card);
  }

  caf::behavior make_behavior() override {
    return {
        [this](const NicChanged& changed) {
          if (changed.state.error) health_.last_error = changed.state.error->message;
          if (changed.state.up == health_.up) return;
          health_.up = changed.state.up;
          if (health_.up) {
            spdlog::info("{}: card {} is back", device_, health_.name);
          } else {
            ++health_.outages;
            spdlog::error("{}: card {} is out: {}", device_, health_.name, health_.last_error);
          }
        },
        [this](const AskNicHealth&) { return health_; },
    };
  }

 private:
  std::string device_;
  NicHealth health_;
};

}  // namespace

caf::actor spawn_nic(caf::actor_system& system, std::string device, std::string card) {
  return system.spawn<NicActor>(std::move(device), std::move(card));
}

}  // namespace penstock
