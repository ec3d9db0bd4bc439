#include "actors/nic/nic_actor.hpp"

#include <spdlog/spdlog.h>

#include "actors/messages.hpp"
#include "actors/nic/card_health.hpp"

namespace penstock {
namespace {

class NicActor : public caf::event_based_actor {
 public:
  NicActor(caf::actor_config& config, std::string device, std::string card)
      : caf::event_based_actor(config), device_(std::move(device)), card_(std::move(card)) {}

  caf::behavior make_behavior() override {
    return {
        [this](const NicChanged& changed) {
          const auto& error = changed.state.error;
          tell_change(health_.endpoint(changed.state.up, error ? error->message : ""));
        },
        [this](const CardSeen& seen) { tell_change(health_.seen(seen.peer, seen.view, seen.why)); },
        [this](const AskNicHealth&) {
          return NicHealth{card_, health_.up(), health_.outages(), health_.last_error()};
        },
    };
  }

 private:
  void tell_change(CardHealth::Change change) {
    if (change == CardHealth::Change::kBack) spdlog::info("{}: card {} is back", device_, card_);
    if (change == CardHealth::Change::kOut)
      spdlog::error("{}: card {} is out: {}", device_, card_, health_.last_error());
  }

  std::string device_;
  std::string card_;
  CardHealth health_;
};

}  // namespace

caf::actor spawn_nic(caf::actor_system& system, std::string device, std::string card) {
  return system.spawn<NicActor>(std::move(device), std::move(card));
}

}  // namespace penstock
