// Whether a transfer may start: everything that can be known before the peer is asked is checked
// here, before anything is posted.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/clock.hpp"
#include "actors/device/outbound.hpp"
#include "actors/device/region_table.hpp"
#include "actors/protocol/request.hpp"
#include "transport/plan/plan.hpp"

namespace penstock {

struct AdmissionRules {
  std::string node;  // ours
  PlanLimits plan;
  Milliseconds default_deadline{60000};
  /// Whether another node may be given work: it is or was a member, and is not draining.
  std::function<Result<void>(const std::string&)> takes_work;
  /// A client's CUDA event on that GPU. May be left out: no event is opened then.
  std::function<Result<std::shared_ptr<GpuEvent>>(int gpu, const std::string& handle)> open_event{};
};

/// One Admitted per target, in order, without ids. One plan serves all targets.
Result<std::vector<Admitted>> admit(const TransferSpec& spec, const AdmissionRules& rules,
                                    RegionTable& regions, TimePoint now);

}  // namespace penstock
