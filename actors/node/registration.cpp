#include "actors/node/registration.hpp"

#include <utility>

namespace penstock {

Result<void> register_everywhere(const LocalDevice& device, Region& region) {
  auto local = std::make_shared<RegisteredMemory>();
  local->memory = region.memory;
  std::vector<std::shared_ptr<MemoryRegistration>> exported;
  for (std::size_t i = 0; i < device.poller->nic_count(); ++i) {
    for (auto* registrations : {&local->registrations, &exported}) {
      auto registration = device.poller->nic(i).register_memory(region.memory->bytes());
      if (!registration)
        return fail(registration.error().code, "card {} of {} did not register {} bytes: {}",
                    device.card_names[i], device.name, region.bytes, registration.error().message);
      registrations->push_back(std::move(*registration));
    }
  }
  region.set_registered(std::move(local), std::move(exported));
  return {};
}

}  // namespace penstock
