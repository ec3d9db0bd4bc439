// The pool of threads that the actors run on.
#pragma once

#include <caf/actor_system_config.hpp>
#include <chrono>
#include <cstddef>

#include "actors/caf.hpp"
#include "actors/patient_sharing.hpp"

namespace penstock {

/// One pool of workers with one queue. CAF's own policies do not fit: an idle work-stealing worker
/// polls for good and takes a core from the data path, a work-sharing one sleeps at once.
class ActorSystemConfig : public caf::actor_system_config, public Patience {
 public:
  ActorSystemConfig(std::size_t threads, std::chrono::microseconds spin) : Patience{spin} {
    module_factories.push_back([](caf::actor_system& system) -> caf::actor_system::module* {
      return new caf::scheduler::coordinator<PatientSharing>(system);
    });
    set("scheduler.max-threads", threads);
    set("logger.verbosity", caf::atom("quiet"));
  }
};

}  // namespace penstock
