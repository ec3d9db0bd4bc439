#include "actors/node/registration.hpp"

#include <utility>

namespace penstock {

Result<void> register_everywhere(const LocalDevice& device, Region& region) {
  auto local = std::make_shared<RegisteredMemory>();
  local->memory = region.memory;
  std::vector<std::shared_ptr<MemoryRegistration>> exported;
  for (std::size_t i = 0; i < device.poller->nic_count(); ++i) {
    Nic& nic = device.poller->nic(i);
    for (auto* registrations : {&local->registrations, &exported}) {
      // A card that does not reach a GPU's memory: the region does without it.
      if (region.on_gpu() && !nic.info().gpu_memory) {
        registrations->push_back(nullptr);
        continue;
      }
      auto registration = register_with(nic, *region.memory);
      if (region.on_gpu() && !registration &&
          registration.error().code == ErrorCode::kUnsupported) {
        registrations->push_back(nullptr);
        continue;
      }
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
